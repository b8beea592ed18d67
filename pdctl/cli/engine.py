"""`pdctl engine`: what an engine or router accepts, read from its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of
from pdctl.cli.usage import UsageFault

app = new_app()


@app.callback(epilog="Example: pdctl engine inspect --python /opt/venv/bin/python", no_args_is_help=False)
def engine() -> None:
    """Read which flags an engine has."""


@verb(app, example="pdctl engine inspect --wheel sglang-0.5.23-py3-none-any.whl --json")
def inspect(
    ctx: typer.Context,
    program: Annotated[
        str, typer.Argument(metavar="[PROGRAM]", help="With --python: sglang or sglang_router.")
    ] = "sglang",
    python: Annotated[
        str | None,
        typer.Option("--python", metavar="PATH", help="The interpreter that has the program installed."),
    ] = None,
    wheel: Annotated[Path | None, typer.Option("--wheel", metavar="FILE", help="A wheel of it.")] = None,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write",
            metavar="DIR",
            help="Keep the table in this folder. Set PDCTL_FLAG_TABLES to it, and pdctl checks by it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Read the flags of SGLang or its router from its source.

    Nothing of it is imported or run, so any machine will do. The result is the flag table of that version,
    or with --write the path of the file.
    """
    from pdctl.flagtable.codec import table_value
    from pdctl.flagtable.shelf import keep
    from pdctl.inspection.inspect import inspect_python, inspect_wheel
    from pdctl.views.flags import flag_lines

    if (python is None) == (wheel is None):
        raise UsageFault("say what to read", hint="give one of --python PATH and --wheel FILE")
    with output_of(ctx, as_json=as_json) as output:
        table = inspect_wheel(wheel) if wheel is not None else inspect_python(program, python or "")
        if write is None:
            output.show(table_value(table), flag_lines(table, output.out))
        else:
            path = str(keep(table, write))
            output.show({"program": table.program, "version": table.version, "path": path}, [path])
