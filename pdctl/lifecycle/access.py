"""From the name of a deployment to what is known of it and to the executor that reaches it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace

from pdctl import plugins
from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import Executor
from pdctl.fields import FieldError
from pdctl.hostlist import fold
from pdctl.plan.codec import plan_from_json, plan_to_json
from pdctl.plan.model import LaunchPlan, PlanNode
from pdctl.state.paths import deployments_dir, state_dir
from pdctl.state.record import DeploymentRecord, RecordStore, is_deployment_name
from pdctl.topology.model import Cluster, Host


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`plan` is what was last applied; None: nothing is known of it."""

    name: str
    executor: Executor
    plan: LaunchPlan | None

    def require_plan(self) -> LaunchPlan:
        if self.plan is None:
            raise _unknown(self.name)
        return self.plan

    def require_known(self) -> None:
        """Raise unless there is a plan, or at least something on the nodes."""
        if self.plan is None and self.name not in self.executor.deployments():
            raise _unknown(self.name)


def records() -> RecordStore:
    """The operator's own records."""
    return RecordStore(directory=deployments_dir(state_dir(os.environ)))


def executor_for(cluster: Cluster) -> Executor:
    factory = plugins.executor_factory(cluster.executor)
    if factory is None:
        raise DiagnosticError.one(
            "PD507",
            f"this version has no executor `{cluster.executor}`",
            notes=(f"it has {_names(plugins.names('executors'))}",),
            help="install the package that brings it, in the same Python environment as pdctl",
        )
    return factory(cluster, os.environ)


def deployments() -> tuple[str, ...]:
    """Every deployment that this operator has a record of, or that runs on this machine."""
    local = executor_for(Cluster())
    return tuple(sorted({*records().names(), *local.deployments()}))


def open_deployment(name: str) -> Deployment:
    """Reach a deployment by name. A lost or damaged record costs nothing, and one that another operator has
    overtaken is mended: what is in force lies on the nodes.
    """
    if not is_deployment_name(name):
        raise _unknown(name)
    record = records().load(name)
    recorded = _plan_from(None if record is None else record.plan)
    executor = executor_for(Cluster() if recorded is None else cluster_of(recorded))
    kept = plan_on_nodes(name, executor)
    if kept is None or recorded is None or kept.digest == recorded.digest:
        return Deployment(name=name, executor=executor, plan=recorded or kept)
    in_force = reached_as(kept, recorded)
    records().save(DeploymentRecord(name=name, plan=_plan_bytes(in_force)))
    return Deployment(name=name, executor=executor_for(cluster_of(in_force)), plan=in_force)


def plan_on_nodes(name: str, executor: Executor) -> LaunchPlan | None:
    """What is kept there; None also where none of those nodes can be reached."""
    try:
        return _plan_from(executor.kept_plan(name))
    except DiagnosticError:
        return None


def with_left_nodes(plan: LaunchPlan, executor: Executor) -> tuple[Executor, LaunchPlan | None]:
    """An executor that also reaches nodes which the plan in force has and `plan` no longer has.

    With the plan in force of just those nodes; None where there are none. A machine that stands for all nodes
    is never left.
    """
    record = records().load(plan.name) if plan.name in records().names() else None
    in_force = plan_on_nodes(plan.name, executor) or _plan_from(None if record is None else record.plan)
    if in_force is None or in_force.executor != plan.executor or plan.executor == "local":
        return executor, None
    reached = reached_as(in_force, plan)
    names = {node.name for node in plan.nodes}
    left = tuple(node for node in reached.nodes if node.name not in names)
    if not left:
        return executor, None
    both = replace(plan, nodes=(*plan.nodes, *left))
    return executor_for(cluster_of(both)), replace(reached, nodes=left)


def cluster_of(plan: LaunchPlan) -> Cluster:
    """The cluster as far as a plan needs it to be reached again."""
    hosts = tuple(Host(name=node.name, address=node.address, ssh=node.ssh) for node in plan.nodes)
    return Cluster(executor=plan.executor, nodes=hosts, ssh=plan.ssh, slurm=plan.slurm)


def introduce(plan: LaunchPlan) -> bool:
    """Let a topology's plan tell how its deployment is reached, for an operator who has no record of it, or
    whose record says otherwise. What is in force stays what the nodes say; where nothing is, nothing happens.

    Whether anything is known of it, by whatever record or node.
    """
    store = records()
    # What was taken down is still on record, but must not be listed again because of a question.
    record = store.load(plan.name) if plan.name in store.names() else None
    in_force = _plan_from(None if record is None else record.plan)
    if in_force is None:
        in_force = _plan_on_nodes(plan)
    if in_force is None:
        return store.load(plan.name) is not None or plan.name in (*store.audited_names(), *deployments())
    if in_force.executor == plan.executor:
        reachable = reached_as(in_force, plan)
        if record is None or reachable != in_force:
            store.save(DeploymentRecord(name=plan.name, plan=_plan_bytes(reachable)))
    return True


def _plan_on_nodes(plan: LaunchPlan) -> LaunchPlan | None:
    """What is kept there; `plan` itself where only a lock is: its owner may have died right after it."""
    executor = executor_for(cluster_of(plan))
    try:
        kept = _plan_from(executor.kept_plan(plan.name))
        is_locked = kept is None and executor.standing(plan.name).holder is not None
        return plan if is_locked else kept
    finally:
        executor.tidy()


def reached_as(in_force: LaunchPlan, plan: LaunchPlan) -> LaunchPlan:
    """The plan in force with the logins of another. A node that only the former has keeps its own.

    Where run directories lie is no matter of logins: a topology that says another place moves none.
    """
    logins = {node.name: node.ssh for node in plan.nodes}
    nodes = tuple(
        replace(node, ssh=replace(logins.get(node.name, node.ssh), state_dir=_state_dir(in_force, node)))
        for node in in_force.nodes
    )
    ssh = None if plan.ssh is None else replace(plan.ssh, state_dir=in_force.ssh and in_force.ssh.state_dir)
    return replace(in_force, ssh=ssh, slurm=plan.slurm, nodes=nodes)


def refuse_moved(plan: LaunchPlan) -> None:
    """Raise `DiagnosticError` where the deployment is up with its run directories in another place than that
    of `plan`: a second one would be started beside it.
    """
    store = records()
    record = store.load(plan.name) if plan.name in store.names() else None
    in_force = _plan_from(None if record is None else record.plan)
    if in_force is None:
        return
    place_of = {node.name: _state_dir(plan, node) for node in plan.nodes}
    moved = {
        node.name: _state_dir(in_force, node)
        for node in in_force.nodes
        if node.name in place_of and place_of[node.name] != _state_dir(in_force, node)
    }
    if moved and plan_on_nodes(plan.name, executor_for(cluster_of(in_force))) is not None:
        place = next(iter(moved.values()))
        before = "the nodes' own default" if place is None else f"`{place}`"
        raise DiagnosticError.one(
            "PD615",
            f"`{plan.name}` is up with its state in {before} on {fold(moved)}, "
            "and the topology says another `state_dir` now",
            notes=("nothing was started or stopped",),
            help=f"run `pdctl down {plan.name}` first, which knows the old place, or set `state_dir` back",
        )


def _state_dir(plan: LaunchPlan, node: PlanNode) -> str | None:
    return node.ssh.state_dir or (plan.ssh and plan.ssh.state_dir) or None


def _plan_bytes(plan: LaunchPlan) -> bytes:
    return json.dumps(plan_to_json(plan), indent=1).encode()


def _unknown(name: str) -> DiagnosticError:
    known = deployments()
    return DiagnosticError.one(
        "PD608",
        f"no deployment `{name}` is known",
        notes=(f"known are {_names(known)}",) if known else (),
        help="`pdctl up FILE` starts one; one that another operator started is found by its topology's path",
    )


def _plan_from(content: bytes | None) -> LaunchPlan | None:
    if content is None:
        return None
    try:
        return plan_from_json(content)
    except FieldError:
        return None


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
