"""`pdctl status`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.completion import complete_deployments
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl status laptop-1p1d --json")
def status(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="The deployment, or its topology. Left out: all that are on record.",
            autocompletion=complete_deployments,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show what runs."""
    from pdctl.cli.targets import deployment_of
    from pdctl.lifecycle.status import status as ask_status
    from pdctl.views.status import statuses_lines

    with output_of(ctx, as_json=as_json) as output:
        statuses = ask_status(None if target is None else deployment_of(target))
        output.show({"deployments": statuses}, statuses_lines(statuses, output.out))
