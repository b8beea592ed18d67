"""The command line as a whole: global options, verbs imported when called, one place for what goes wrong."""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated

import typer
from typer.core import TyperGroup
from typer.main import get_command

from pdctl.cli import exits
from pdctl.cli.options import CONTEXT
from pdctl.cli.output import Globals, ReaderGoneError, WriteError
from pdctl.cli.signals import tell_interrupt
from pdctl.cli.usage import usage_lines
from pdctl.cli.verbs import HELP_OF_VERBS
from pdctl.views.canvas import ColorMode

if TYPE_CHECKING:
    from typer._click.core import Command, Context  # only its types: typer has its own copy of click
    from typer._click.formatting import HelpFormatter

EPILOG = (
    "Exit codes: 0 done or nothing to do; 1 error, wrong usage too; 2 changes pending (with --exit-code); "
    "130 interrupted.\n\n"
    "Environment: PDCTL_STATE_DIR keeps records and runs (~/.local/state/pdctl), PDCTL_FLAG_TABLES has flag "
    "tables of your own, PDCTL_DEBUG=1 shows the traceback of a bug, NO_COLOR and FORCE_COLOR are obeyed."
)


class LazyGroup(TyperGroup):
    """A group whose commands are modules, imported when they are called."""

    def invoke(self, ctx: Context) -> object:
        """typer itself would end in silence."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interrupt:
            raise typer.Exit(tell_interrupt(interrupt)) from None

    def list_commands(self, ctx: Context) -> list[str]:
        return list(HELP_OF_VERBS)

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        if cmd_name in HELP_OF_VERBS:
            return get_command(importlib.import_module(f"pdctl.cli.{cmd_name}").app)
        if ctx.resilient_parsing:
            return None
        near = get_close_matches(cmd_name, HELP_OF_VERBS, n=1)
        ctx.fail(f"no command `{cmd_name}`" + (f", did you mean `{near[0]}`?" if near else ""))

    def format_commands(self, ctx: Context, formatter: HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(HELP_OF_VERBS.items()))


app = typer.Typer(
    cls=LazyGroup,
    epilog=EPILOG,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=dict(CONTEXT),
)


@app.callback(invoke_without_command=True)
def pdctl(
    ctx: typer.Context,
    color: Annotated[ColorMode, typer.Option(help="Colour what is shown.")] = ColorMode.AUTO,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show neither progress nor warnings.")] = False,
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    """Serve large language models with prefill/decode disaggregation from one YAML topology.

    Start with: pdctl up topologies/laptop_1p1d.yaml
    """
    ctx.obj = Globals(color=color, is_quiet=quiet, environ=os.environ)
    if ctx.invoked_subcommand is not None:
        return
    if version:
        from pdctl.cli.version import version as print_version

        print_version(ctx)
        return
    typer.echo(ctx.get_help(), err=True)
    raise typer.Exit(exits.ERROR)


def run(args: Sequence[str]) -> int:
    """Run one command line; the exit code. Nothing that happens in a verb escapes as a traceback."""
    for stream in (sys.stdout, sys.stderr):
        _soften(stream)
    try:
        code = get_command(app).main(list(args), prog_name="pdctl", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt as interrupt:
        return tell_interrupt(interrupt)
    except SystemExit as end:  # typer's own: completion scripts, a reader that leaves while help is printed
        return end.code if isinstance(end.code, int) else exits.ERROR
    except Exception as error:  # the boundary of the program
        return tell_failure(error, args)
    return code if isinstance(code, int) else 0


def tell_failure(error: Exception, args: Sequence[str]) -> int:
    """What went wrong, in the words that fit; a bug becomes one line and a file."""
    match error:
        case typer.TyperException():
            print(*usage_lines(error, args), sep="\n", file=sys.stderr)
        case ReaderGoneError() | BrokenPipeError():
            _discard_stdout()
            return exits.READER_GONE
        case WriteError():
            print(f"error: {error}", file=sys.stderr)
            _discard_stdout()
        case _:
            from pdctl.cli.crash import report

            report(error, os.environ)
    return exits.ERROR


def _soften(stream: object) -> None:
    """A character that the locale can't show becomes an escape instead of a traceback."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="backslashreplace")


def _discard_stdout() -> None:
    """The reader is gone: nothing more may be written, not even at the interpreter's exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
