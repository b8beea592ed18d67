"""`pdctl nodes`: nodes of a Slurm cluster that failed, and that jobs do without for a while."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from pdctl.cli.completion import complete_topologies
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()

Topology = Annotated[
    str | None,
    typer.Option(
        "--topology",
        "-t",
        metavar="FILE",
        help="Whose run directory has the list. Left out: the site's, or the default one.",
        autocompletion=complete_topologies,
    ),
]
Names = Annotated[list[str], typer.Argument(metavar="NODE...", help="As Slurm names them.")]


@app.callback(epilog="Example: pdctl nodes list", no_args_is_help=False)
def nodes() -> None:
    """List, add and forget bad nodes of a Slurm cluster."""


@verb(app, example="pdctl nodes list", name="list")
def list_nodes(ctx: typer.Context, topology: Topology = None, as_json: AsJson = False) -> None:
    """List nodes that jobs do without.

    What each is blamed for, and how long it stays on the list.
    """
    from pdctl.lifecycle.nodes import bad_nodes
    from pdctl.views.nodes import nodes_lines

    with output_of(ctx, as_json=as_json) as output:
        now = time.time()
        found = bad_nodes(topology).all(now)
        output.show({"nodes": found}, nodes_lines(found, now, output.out))


@verb(app, example='pdctl nodes add gpu07 --why "link errors"')
def add(
    ctx: typer.Context,
    names: Names,
    why: Annotated[str, typer.Option("--why", metavar="TEXT", help="What they are blamed for.")],
    hours: Annotated[
        float | None,
        typer.Option("--hours", min=0.01, max=100_000, help="How long. Left out: a day for each time."),
    ] = None,
    topology: Topology = None,
    as_json: AsJson = False,
) -> None:
    """Do without nodes from the next `up` on."""
    from pdctl.lifecycle.nodes import bad_nodes
    from pdctl.views.nodes import nodes_lines

    with output_of(ctx, as_json=as_json) as output:
        now, listed = time.time(), bad_nodes(topology)
        kept_s = None if hours is None else hours * 3600
        added = [listed.remember(name, why, now=now, kept_s=kept_s) for name in names]
        output.show({"nodes": added}, nodes_lines(added, now, output.out))


@verb(app, example="pdctl nodes forget gpu07")
def forget(ctx: typer.Context, names: Names, topology: Topology = None, as_json: AsJson = False) -> None:
    """Let jobs have nodes again."""
    from pdctl.lifecycle.nodes import bad_nodes

    with output_of(ctx, as_json=as_json) as output:
        bad_nodes(topology).forget(names)
        output.show({"forgotten": names}, [f"forgotten: {', '.join(names)}"])
