"""From the FILE of a verb to its plan and changes, with the warnings on the way."""

from __future__ import annotations

import os
from pathlib import Path

from pdctl.cli.output import Output
from pdctl.diagnostics import DiagnosticError
from pdctl.lifecycle.planning import Planned, TopologySource, compare, plan_file
from pdctl.reconcile.model import ChangeSet
from pdctl.resources import resource_path
from pdctl.views.changes import changes_lines, changes_value


def plan_of(
    output: Output,
    file: str,
    sets: list[str] | None,
    profile: str | None,
    engine: str | None = None,
    *,
    is_for_doctor: bool = False,
) -> Planned:
    """The plan of `file`, or of its rehearsal; its warnings are shown, its errors raised."""
    planned = plan_file(source_of(file, sets, profile, engine), is_for_doctor=is_for_doctor)
    output.diagnostics(planned.warnings)
    return planned


def source_of(
    file: str, sets: list[str] | None, profile: str | None, engine: str | None = None
) -> TopologySource:
    """What to plan, as the verb's parameters have it."""
    refuse_shipped_name(file)
    return TopologySource(path=file, sets=tuple(sets or ()), profile=profile, is_rehearsal=engine is not None)


def show_changes(output: Output, planned: Planned) -> ChangeSet:
    """What `up` would do now, as the verb's result."""
    changes = compare(planned)
    name = planned.plan.name
    output.show(changes_value(name, changes), changes_lines(name, changes, output.out))
    return changes


def refuse_shipped_name(file: str) -> None:
    """A topology that ships with pdctl, named without its folder, is told where it lies."""
    if file == "-" or Path(file).exists():
        return
    wanted = Path(file).name.removesuffix(".yaml").replace("-", "_")
    shipped = resource_path("topologies", f"{wanted}.yaml")
    if wanted and shipped.is_file():
        near = os.path.relpath(shipped)
        raise DiagnosticError.one(
            "PD101",
            f"no file `{file}`",
            help=f"pdctl ships a topology of this name: `{shipped if near.startswith('..') else near}`",
        )


def looks_like_file(target: str) -> bool:
    """Whether a word means a topology rather than the name of a deployment."""
    return target == "-" or "/" in target or target.endswith((".yaml", ".yml"))
