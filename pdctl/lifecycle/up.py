"""Make what runs equal to a topology; `restart` is the same with some instances replaced anyway."""

from __future__ import annotations

from pdctl.events import EventSink
from pdctl.lifecycle.access import cluster_of, executor_for, open_deployment, refuse_moved, with_left_nodes
from pdctl.lifecycle.hand_over import restart_by_deputy, up_by_deputy
from pdctl.lifecycle.make_true import UpOptions, UpOutcome, make_true
from pdctl.lifecycle.planning import Planned
from pdctl.lifecycle.targets import instances_of

__all__ = ["UpOptions", "UpOutcome", "restart", "up"]


def up(planned: Planned, sink: EventSink, options: UpOptions) -> UpOutcome:
    """Start, replace and stop what must be, wait until all serves, and prove it with one generation.

    Nodes that the plan in force has and the topology no longer has are seen to as well, or nothing is done.
    """
    refuse_moved(planned.plan)
    deputy = planned.executor.deputy(planned.plan.name)
    if deputy is not None:
        return up_by_deputy(deputy, planned, sink, options)
    executor, left = with_left_nodes(planned.plan, planned.executor)
    outcome = make_true(planned.plan, executor, sink, options, verb="up", left=left)
    if left is not None:
        executor_for(cluster_of(left)).forget(left.name)
    return outcome


def restart(name: str, ids: tuple[str, ...], sink: EventSink, options: UpOptions) -> UpOutcome:
    """Restart the instances that `ids` name, by instance or process, as last planned; no ids mean all.

    What they start after is started too where it does not run. Nothing else is touched.
    """
    deployment = open_deployment(name)
    plan = deployment.require_plan()
    instances = instances_of(plan, ids) if ids else frozenset(instance.id for instance in plan.instances)
    deputy = deployment.executor.deputy(name)
    if deputy is not None:
        return restart_by_deputy(deputy, deployment, instances, sink, options)
    return make_true(plan, deployment.executor, sink, options, verb="restart", restart_ids=instances)
