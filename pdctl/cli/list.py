"""`pdctl list`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.completion import complete_kinds
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl list topologies")
def list_names(
    ctx: typer.Context,
    kind: Annotated[
        str | None,
        typer.Argument(
            metavar="KIND",
            help="topologies, engines, routers, executors, backends or models. Left out: all.",
            autocompletion=complete_kinds,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what a topology can name."""
    from pdctl.cli.catalog import Kind, catalog
    from pdctl.cli.usage import UsageFault
    from pdctl.views.listing import listing_lines

    with output_of(ctx, as_json=as_json) as output:
        if kind is not None and kind not in tuple(Kind):
            raise UsageFault(f"no kind `{kind}`", hint=f"kinds are {', '.join(Kind)}")
        kinds = tuple(Kind) if kind is None else (Kind(kind),)
        entries = catalog(kinds)
        output.show(entries, listing_lines(entries, output.out))
