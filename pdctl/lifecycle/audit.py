"""A line in the history for every act that changes something, also for one that fails."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from pdctl.alike import folded
from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import PlanKeeping
from pdctl.hostlist import fold
from pdctl.lifecycle.access import records
from pdctl.reconcile.model import ChangeSet, Op
from pdctl.state.audit import AuditEntry, append_audit, merged, read_audit
from pdctl.state.lock import operator


@dataclass(slots=True)
class Notes:
    """What the act tells of itself while it goes on."""

    changes: tuple[str, ...] = ()
    missed: str | None = None  # what a `down` could not finish
    is_gone: bool = field(default=False)  # the deployment: a line on its nodes would be left behind

    def intend(self, changes: ChangeSet) -> None:
        self.changes = tuple(
            f"{op} {fold(each.process_id for each in changes.of(op))}"
            for op in (Op.STOP, Op.REPLACE, Op.CREATE)
            if changes.of(op)
        )


@contextmanager
def audited(name: str, verb: str, nodes: PlanKeeping) -> Generator[Notes]:
    """Write how the act ended, into the operator's own record and to the deployment's first node.

    The first is what must not fail. The second is for other operators, and an act is no failure without it.
    """
    notes = Notes()
    outcome, why = "failed", None
    try:
        yield notes
        outcome, why = ("done", None) if notes.missed is None else ("unfinished", notes.missed)
    except DiagnosticError as error:
        why = "; ".join(f"{each.code}: {each.message}" for each in folded(error.diagnostics))
        raise
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        entry = AuditEntry(
            at=time.time(), who=operator(), verb=verb, outcome=outcome, changes=notes.changes, detail=why
        )
        append_audit(records().audit_path(name), entry)
        if not notes.is_gone:
            with contextlib.suppress(DiagnosticError):
                nodes.note(name, entry)


def bring_home(name: str, nodes: PlanKeeping) -> None:
    """Before a deployment goes, take other operators' lines of its history into our own record."""
    path = records().audit_path(name)
    own = read_audit(path)
    for entry in merged(nodes.history(name)):
        if entry not in own:
            append_audit(path, entry)
