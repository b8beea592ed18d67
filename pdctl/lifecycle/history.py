"""Who did what to deployments, as far as this operator and the nodes know."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.diagnostics import DiagnosticError
from pdctl.lifecycle.access import open_deployment, records
from pdctl.state.audit import AuditEntry, merged, read_audit


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    deployment: str
    entry: AuditEntry


def history(name: str | None) -> tuple[Act, ...]:
    """Every act on one deployment, or on all that are known here, also those that are down; oldest first."""
    store = records()
    names = tuple(dict.fromkeys((*store.audited_names(), *store.names()))) if name is None else (name,)
    acts = [Act(deployment=each, entry=entry) for each in names for entry in _entries(each)]
    return tuple(sorted(acts, key=lambda act: act.entry.at))


def _entries(name: str) -> tuple[AuditEntry, ...]:
    """From the nodes too while it is up: other operators' acts stand there alone."""
    store = records()
    is_down = name in store.audited_names() and name not in store.names()
    if is_down:
        return merged(read_audit(store.audit_path(name)))
    deployment = open_deployment(name)  # raises for what can't be a name
    own = read_audit(store.audit_path(name))
    try:
        there = deployment.executor.history(name)
    except DiagnosticError:
        if not own:
            raise
        there = ()
    if not own and not there:
        deployment.require_known()
    return merged(own, there)
