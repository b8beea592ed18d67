"""`pdctl doctor`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli import exits
from pdctl.cli.completion import complete_topologies
from pdctl.cli.options import AsJson, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import Output, output_of
from pdctl.cli.usage import UsageFault
from pdctl.doctor.model import DoctorReport

app = new_app()


@verb(app, example="pdctl doctor topologies/laptop_1p1d.yaml")
def doctor(
    ctx: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="FILE|NAME",
            help="A topology, or a deployment that runs.",
            autocompletion=complete_topologies,
        ),
    ],
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    as_json: AsJson = False,
) -> None:
    """Look whether the nodes can run a topology.

    Nothing is started but listeners that live for a moment. Errors end with exit code 1.
    """
    from pdctl.views.doctor import doctor_lines, doctor_value

    with output_of(ctx, as_json=as_json) as output:
        report = _report(output, target, sets, profile, engine)
        output.show(doctor_value(report), doctor_lines(report, output.out))
        if report.has_errors:
            raise typer.Exit(exits.ERROR)


def _report(
    output: Output, target: str, sets: list[str] | None, profile: str | None, engine: str | None
) -> DoctorReport:
    from pdctl.cli.planning import looks_like_file, plan_of
    from pdctl.lifecycle.doctor import doctor as look
    from pdctl.lifecycle.doctor import doctor_of_deployment

    if looks_like_file(target):
        return look(plan_of(output, target, sets, profile, engine, is_for_doctor=True))
    if sets or profile or engine:
        raise UsageFault(
            "`--set`, `--profile` and `--engine` overlay a file", hint="name the topology instead"
        )
    return doctor_of_deployment(target)
