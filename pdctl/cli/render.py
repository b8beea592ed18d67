"""`pdctl render`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from pdctl.cli.options import AsJson, File, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


class Form(StrEnum):
    SHELL = "shell"
    SBATCH = "sbatch"


_FORMS_HELP = "shell: one runnable script per node. sbatch: one batch script for Slurm, which needs no pdctl."


@verb(app, example="pdctl render topologies/deepseek_v3.yaml --as shell -o scripts")
def render(
    ctx: typer.Context,
    file: File,
    form: Annotated[Form, typer.Option("--as", help=_FORMS_HELP)] = Form.SHELL,
    directory: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Write them there, not to stdout."),
    ] = None,
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    as_json: AsJson = False,
) -> None:
    """Write a topology's plan as scripts, to read or to run by hand."""
    from pdctl.cli.planning import plan_of
    from pdctl.cli.script_files import batch_scripts, require_consistent, write_scripts
    from pdctl.views.shell_script import shell_scripts

    with output_of(ctx, as_json=as_json) as output:
        planned = plan_of(output, file, sets, profile, engine)
        require_consistent(planned.plan)
        scripts = batch_scripts(planned) if form is Form.SBATCH else shell_scripts(planned.plan)
        if directory is None:
            output.show(scripts, (line for text in scripts.values() for line in text.splitlines()))
            return
        paths = write_scripts(scripts, directory)
        output.show({"files": paths}, paths)
