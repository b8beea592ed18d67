"""`pdctl plan`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli import exits
from pdctl.cli.options import AsJson, ExitCode, File, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl plan topologies/laptop_1p1d.yaml --process decode-0.0")
def plan(
    ctx: typer.Context,
    file: File,
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    process: Annotated[
        str | None,
        typer.Option("--process", metavar="ID", help="Show the command of one process only, ready to paste."),
    ] = None,
    exit_code: ExitCode = False,
    as_json: AsJson = False,
) -> None:
    """Show every process that `up` would run."""
    from pdctl.cli.planning import plan_of
    from pdctl.lifecycle.planning import compare
    from pdctl.lifecycle.targets import processes_of
    from pdctl.plan.codec import plan_to_json, process_to_json
    from pdctl.views.plan import plan_lines, process_lines

    with output_of(ctx, as_json=as_json) as output:
        planned = plan_of(output, file, sets, profile, engine)
        if process is None:
            output.show(plan_to_json(planned.plan), plan_lines(planned.plan, output.out))
        else:
            wanted = processes_of(planned.plan, (process,))[0]  # an instance's first is its leader
            spec = next(each for each in planned.plan.processes if each.id == wanted)
            output.show(process_to_json(spec), process_lines(spec, output.out))
        if exit_code and not compare(planned).is_empty:
            raise typer.Exit(exits.CHANGES_PENDING)
