"""End a deployment for good."""

from __future__ import annotations

from pdctl.events import EventSink
from pdctl.lifecycle.access import open_deployment, records
from pdctl.lifecycle.hand_over import down_by_deputy
from pdctl.lifecycle.take_down import DownOutcome, take_down

__all__ = ["DownOutcome", "down"]


def down(name: str, sink: EventSink, *, purge: bool = False) -> DownOutcome:
    """Stop every process, its descendants too, and remove the run directories.

    Stopping what never ran, or what is down already, is no fault. `purge` forgets the record as well.
    """
    deployment = open_deployment(name)
    deployment.require_known()
    deputy = deployment.executor.deputy(name)
    outcome = take_down(deployment, sink) if deputy is None else down_by_deputy(deputy, deployment, sink)
    if outcome.is_complete:
        records().remove(name) if purge else records().retire(name)
    return outcome
