"""`pdctl validate`."""

from __future__ import annotations

from dataclasses import dataclass

import typer

from pdctl.cli import exits
from pdctl.cli.options import AsJson, File, Profile, Rehearsal, Sets, new_app, verb
from pdctl.cli.output import output_of
from pdctl.diagnostics import Diagnostic, DiagnosticError

app = new_app()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `--json` prints."""

    file: str
    is_valid: bool
    diagnostics: tuple[Diagnostic, ...]


@verb(app, example="pdctl validate topologies/laptop_1p1d.yaml")
def validate(
    ctx: typer.Context,
    file: File,
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    as_json: AsJson = False,
) -> None:
    """Check a topology and report every fault in it."""
    from pdctl.cli.planning import plan_of
    from pdctl.views.plan import plan_summary

    with output_of(ctx, as_json=as_json) as output:
        try:
            planned = plan_of(output, file, sets, profile, engine)
        except DiagnosticError as error:
            if not as_json:
                raise
            output.show(Verdict(file=file, is_valid=False, diagnostics=error.diagnostics), ())
            raise typer.Exit(exits.ERROR) from None
        verdict = Verdict(file=file, is_valid=True, diagnostics=planned.warnings)
        output.show(verdict, [f"{file} is valid: {plan_summary(planned.plan)}"])
