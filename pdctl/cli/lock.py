"""`pdctl lock`: who works on a deployment, and how to go on when they never will."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from pdctl.cli import exits
from pdctl.cli.completion import complete_deployments
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of
from pdctl.cli.usage import UsageFault

app = new_app()

Deployment = Annotated[
    str,
    typer.Argument(
        metavar="NAME|FILE", help="The deployment, or its topology.", autocompletion=complete_deployments
    ),
]


@app.callback(epilog="Example: pdctl lock show laptop-1p1d", no_args_is_help=False)
def lock() -> None:
    """Show or break a deployment's lock."""


@verb(app, example="pdctl lock show laptop-1p1d")
def show(ctx: typer.Context, target: Deployment, as_json: AsJson = False) -> None:
    """Show who works on a deployment.

    Who, from which machine, with which command, since when.
    """
    from pdctl.cli.targets import deployment_of
    from pdctl.lifecycle.lock import lock_of
    from pdctl.views.lock import lock_lines

    with output_of(ctx, as_json=as_json) as output:
        state = lock_of(deployment_of(target))
        output.show(state, lock_lines(state, output.out))


@verb(app, example="pdctl lock break laptop-1p1d", name="break")
def break_(
    ctx: typer.Context,
    target: Deployment,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
) -> None:
    """Take a deployment's lock from its holder.

    Only when the holder will never give it back: two who work at once undo each other's doing.
    """
    from pdctl.cli.targets import deployment_of
    from pdctl.lifecycle.lock import break_lock, lock_of
    from pdctl.views.lock import broken_lines, lock_lines

    with output_of(ctx, as_json=as_json) as output:
        name = deployment_of(target)
        state = lock_of(name)
        if state.holder is not None and not yes:
            if not sys.stdin.isatty():
                raise UsageFault("nobody is there to be asked", hint="give --yes to break the lock anyway")
            output.tell(state, lock_lines(state, output.err))
            if not typer.confirm("Take the lock away?", err=True):
                raise typer.Exit(exits.ERROR)
        is_broken = state.holder is not None and break_lock(name, state.holder)
        output.show({**state.to_json(), "is_broken": is_broken}, broken_lines(state, is_broken=is_broken))
