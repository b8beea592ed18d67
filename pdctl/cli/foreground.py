"""`pdctl up --foreground`: this process is the deployment's steward, and its exit code the deployment's."""

from __future__ import annotations

import typer

from pdctl.cli.output import Output
from pdctl.lifecycle.make_true import UpOptions
from pdctl.lifecycle.planning import TopologySource
from pdctl.lifecycle.steward import serve


def stay(output: Output, source: TopologySource, options: UpOptions) -> None:
    """Until the end; what went wrong on the way is told as it comes."""
    with output.progress() as sink:
        end = serve(source, sink, options, tell=output.diagnostics)
    output.tell({"ended": end}, [f"the deployment ended: {end.reason}"])
    if end.code:
        raise typer.Exit(end.code)
