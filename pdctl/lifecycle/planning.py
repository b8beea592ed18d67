"""From a file to a plan, and from a plan to what would change."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

from pdctl import plugins, rules
from pdctl.compiler import Programs, compile_plan
from pdctl.diagnostics import Diagnostic, DiagnosticError, has_errors
from pdctl.executors.base import Executor
from pdctl.executors.slurm_job.home import placed
from pdctl.executors.slurm_job.site import settled
from pdctl.inventory import IncompleteInventoryError, Inventory, declared
from pdctl.lifecycle.access import executor_for
from pdctl.models.resolve import with_facts
from pdctl.plan.binding import marked
from pdctl.plan.model import LaunchPlan
from pdctl.reconcile.model import ChangeSet
from pdctl.reconcile.reconcile import reconcile
from pdctl.rehearsal import rehearsed, with_shared_heads
from pdctl.topology.anchor import anchored
from pdctl.topology.freeze import frozen
from pdctl.topology.load import load
from pdctl.topology.model import Cluster, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologySource:
    path: str  # `-` is standard input
    sets: tuple[str, ...] = ()
    profile: str | None = None
    is_rehearsal: bool = False  # on this machine, with the reference engine


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A checked topology with its plan, and what reaches its nodes."""

    topology: Topology
    plan: LaunchPlan
    inventory: Inventory
    executor: Executor
    warnings: tuple[Diagnostic, ...]
    document: str  # the frozen topology: says the same on any machine


def plan_file(source: TopologySource, *, is_for_doctor: bool = False) -> Planned:
    """Load, check and compile. Raises `DiagnosticError` with every fault and warning together.

    For the doctor, a node that can't tell its address has its name in place of it: that is a finding to tell
    with all others.
    """
    loaded = load(source.path, environ=os.environ, profile=source.profile, sets=source.sets)
    written = loaded.require()
    chosen, differences = rehearsed(written) if source.is_rehearsal else (written, ())
    at_site = settled(anchored(chosen, source.path), os.environ)
    topology, model_faults = with_facts(at_site.topology)
    if source.is_rehearsal:
        topology = with_shared_heads(topology)
    found = (
        *loaded.diagnostics,
        *differences,
        *at_site.diagnostics,
        *model_faults,
        *rules.check(topology),
    )
    if has_errors(found):
        raise DiagnosticError(found)
    cluster = _placed(topology)
    executor = executor_for(cluster)
    inventory = _acquired(executor, cluster, is_for_doctor)
    try:
        plan = compile_plan(topology, inventory, _programs(topology))
    except DiagnosticError as error:
        raise DiagnosticError((*found, *error.diagnostics)) from error
    return Planned(
        topology=topology,
        plan=plan,
        inventory=inventory,
        executor=executor,
        warnings=found,
        document=frozen(loaded.document, replace(topology, cluster=cluster)),
    )


def open_plan(planned: Planned) -> LaunchPlan:
    """The same plan before there are nodes: marks of `pdctl/plan/binding.py` stand for what only an
    allocation knows.
    """
    cluster = planned.topology.cluster
    inventory = marked(declared(cluster), cluster)
    return compile_plan(planned.topology, inventory, _programs(planned.topology))


def _acquired(executor: Executor, cluster: Cluster, is_for_doctor: bool) -> Inventory:
    try:
        return executor.acquire(cluster)
    except IncompleteInventoryError as error:
        if not is_for_doctor:
            raise
        return error.inventory


def compare(planned: Planned) -> ChangeSet:
    """What `up` would do now."""
    executor = planned.executor
    try:
        return reconcile(planned.plan, executor.observe(planned.plan.name))
    finally:
        executor.tidy()


def _placed(topology: Topology) -> Cluster:
    """The cluster, in which a job finds what it shares with us."""
    cluster = topology.cluster
    if cluster.executor != "slurm":
        return cluster
    return replace(cluster, slurm=placed(cluster.slurm, topology.name, os.environ))


def _programs(topology: Topology) -> Programs:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    assert engine is not None, "the rules refuse a kind that doesn't exist"
    assert router is not None, "the rules refuse a kind that doesn't exist"
    return Programs(engine=engine, router=router)
