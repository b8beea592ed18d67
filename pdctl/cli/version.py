"""`pdctl version`."""

from __future__ import annotations

import platform

import typer

import pdctl
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl version --json")
def version(ctx: typer.Context, as_json: AsJson = False) -> None:
    """Print the version."""
    with output_of(ctx, as_json=as_json) as output:
        value = {"pdctl": pdctl.__version__, "python": platform.python_version()}
        output.show(value, [f"pdctl {pdctl.__version__}"])
