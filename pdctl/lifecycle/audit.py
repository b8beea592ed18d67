"""A line in the audit log for every act that changes something, also for one that fails."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from pdctl.diagnostics import DiagnosticError
from pdctl.lifecycle.access import records
from pdctl.reconcile.model import ChangeSet, Op
from pdctl.state.audit import AuditEntry, append_audit
from pdctl.state.lock import operator


@contextmanager
def audited(name: str, verb: str) -> Generator[Callable[[ChangeSet], None]]:
    """Write how the act ended; the caller notes the changes that it set out to make."""
    intended: list[str] = []

    def note(changes: ChangeSet) -> None:
        intended.extend(f"{each.op} {each.process_id}" for each in changes.changes if each.op is not Op.KEEP)

    outcome, why = "failed", None
    try:
        yield note
        outcome = "done"
    except DiagnosticError as error:
        why = str(error)
        raise
    except KeyboardInterrupt:
        outcome = "interrupted"
        raise
    finally:
        detail = "; ".join(filter(None, (", ".join(intended), why))) or None
        entry = AuditEntry(at=time.time(), who=operator(), verb=verb, outcome=outcome, detail=detail)
        append_audit(records().audit_path(name), entry)
