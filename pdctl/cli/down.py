"""`pdctl down`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from pdctl.cli import exits
from pdctl.cli.completion import complete_deployments
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl down laptop-1p1d")
def down(
    ctx: typer.Context,
    target: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME|FILE",
            help="The deployment, or its topology. May be left out when there is just one.",
            autocompletion=complete_deployments,
        ),
    ] = None,
    purge: Annotated[bool, typer.Option("--purge", help="Remove logs and the record of it too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a deployment and leave nothing behind."""
    from pdctl.cli.operation import telling_interrupts
    from pdctl.cli.targets import deployment_of
    from pdctl.lifecycle.down import down as take_down
    from pdctl.views.outcome import down_lines

    with output_of(ctx, as_json=as_json) as output:
        with telling_interrupts(output, again=shlex.join(["pdctl", "down", *([target] if target else [])])):
            name = deployment_of(target)
            with output.progress() as sink:
                outcome = take_down(name, sink, purge=purge)
        output.show(
            {
                "name": name,
                "stopped": outcome.stopped,
                "leftovers": outcome.leftovers,
                "pending": outcome.pending,
                "unproven": outcome.unproven,
                "elapsed_s": outcome.elapsed_s,
            },
            down_lines(name, outcome, output.out),
        )
        if outcome.leftovers or outcome.pending:
            raise typer.Exit(exits.ERROR)
