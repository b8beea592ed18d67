"""`pdctl history`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.completion import complete_deployments
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl history laptop-1p1d")
def history(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="The deployment, or its topology. Left out: all that are known here.",
            autocompletion=complete_deployments,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List who did what, also other operators."""
    from pdctl.cli.targets import deployment_of
    from pdctl.lifecycle.history import history as ask_history
    from pdctl.views.history import history_lines

    with output_of(ctx, as_json=as_json) as output:
        acts = ask_history(None if target is None else deployment_of(target))
        output.show({"acts": acts}, history_lines(acts, output.out))
