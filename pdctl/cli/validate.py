"""`pdctl validate`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from pdctl.cli import exits
from pdctl.cli.completion import complete_topologies
from pdctl.cli.options import AsJson, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import Output, output_of
from pdctl.diagnostics import Diagnostic, DiagnosticError

app = new_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `--json` prints, for each file."""

    file: str
    is_valid: bool
    diagnostics: tuple[Diagnostic, ...]


@verb(app, example="pdctl validate topologies/laptop_1p1d.yaml")
def validate(
    ctx: typer.Context,
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="The topologies; - reads standard input.",
            autocompletion=complete_topologies,
        ),
    ],
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    as_json: AsJson = False,
) -> None:
    """Check topologies and report every fault in them."""
    with output_of(ctx, as_json=as_json) as output:
        verdicts = [_judge(output, file, sets, profile, engine) for file in files]
        if not all(verdicts):
            raise typer.Exit(exits.ERROR)


def _judge(
    output: Output, file: str, sets: list[str] | None, profile: str | None, engine: str | None
) -> bool:
    """Whether the file is valid, which is shown, with its faults."""
    from pdctl.cli.planning import plan_of
    from pdctl.views.plan import plan_summary

    try:
        planned = plan_of(output, file, sets, profile, engine)
    except DiagnosticError as error:
        if output.is_json:
            output.show(Verdict(file=file, is_valid=False, diagnostics=error.diagnostics), ())
        else:
            output.diagnostics(error.diagnostics)
        return False
    verdict = Verdict(file=file, is_valid=True, diagnostics=planned.warnings)
    output.show(verdict, [f"{file} is valid: {plan_summary(planned.plan)}"])
    return True
