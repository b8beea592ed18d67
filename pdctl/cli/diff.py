"""`pdctl diff`."""

from __future__ import annotations

import typer

from pdctl.cli import exits
from pdctl.cli.options import AsJson, ExitCode, File, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl diff topologies/laptop_1p1d.yaml --set decode.instances=2")
def diff(
    ctx: typer.Context,
    file: File,
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Show what `up` would change, and why."""
    from pdctl.cli.planning import plan_of, show_changes

    with output_of(ctx, as_json=as_json) as output:
        changes = show_changes(output, plan_of(output, file, sets, profile, engine))
        if exit_code and not changes.is_empty:
            raise typer.Exit(exits.CHANGES_PENDING)
