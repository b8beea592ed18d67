"""Ask the nodes: one call each for all that is there, a second one where nodes must reach each other."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.diagnostics import Diagnostic
from pdctl.doctor.facts import SHARED_MEMORY_PATH, NodeFacts
from pdctl.doctor.meeting import CallOutcome, Meeting
from pdctl.doctor.needs import NodeNeeds, needs_of
from pdctl.doctor.peers import calls_of
from pdctl.doctor.read_facts import read_facts
from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import NodeQuestion, NodeReply
from pdctl.fields import FieldError
from pdctl.plan.model import LaunchPlan

SURVEY_TIMEOUT_S = 60.0  # a model's folder on a network file system, a driver that wakes its devices


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Which parts are asked. `up` leaves out what takes long, and what it finds out by itself."""

    ports: bool = True
    deployments: bool = True
    devices: bool = True
    peers: bool = True


EVERYTHING = Scope()
BEFORE_UP = Scope(deployments=False, devices=False, peers=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """All that is known of the nodes when the checks begin."""

    plan: LaunchPlan
    scope: Scope
    needs: tuple[NodeNeeds, ...]
    facts: Mapping[str, NodeFacts]  # by node; those that could not answer are in `faults`
    faults: Mapping[str, tuple[Diagnostic, ...]]
    calls: tuple[CallOutcome, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict[str, str])  # of packages, as planned

    @property
    def answered(self) -> tuple[tuple[NodeNeeds, NodeFacts], ...]:
        return tuple((needs, self.facts[needs.name]) for needs in self.needs if needs.name in self.facts)


def survey(
    plan: LaunchPlan, nodes: NodeAccess, scope: Scope, *, versions: Mapping[str, str] | None = None
) -> Survey:
    """Nodes that can't be reached or asked hide nothing of the others."""
    needs = needs_of(plan)
    calls = calls_of(plan) if scope.peers else ()
    meeting = Meeting(calls=calls, token=uuid.uuid4().hex)
    replies = nodes.ask("survey", [_question(each, scope, meeting) for each in needs])
    facts: dict[str, NodeFacts] = {}
    faults: dict[str, tuple[Diagnostic, ...]] = {}
    for each, reply in zip(needs, replies, strict=True):
        found = _facts(reply, each)
        if isinstance(found, NodeFacts):
            facts[each.name] = found
        else:
            faults[each.name] = found
    answered = {reply.node: reply.content for reply in replies if reply.content is not None}
    outcomes = meeting.hold(nodes, answered, {each.name: each.address for each in needs}) if calls else ()
    return Survey(
        plan=plan,
        scope=scope,
        needs=needs,
        facts=facts,
        faults=faults,
        calls=outcomes,
        versions=versions or {},
    )


def _question(needs: NodeNeeds, scope: Scope, meeting: Meeting) -> NodeQuestion:
    content: dict[str, object] = {
        "node": needs.name,
        "folders": ["/tmp", SHARED_MEMORY_PATH, *([needs.hub_folder] if needs.hub_models else [])],
        "programs": [
            {"python": each.python, "packages": list(each.packages), "env": dict(each.env)}
            for each in needs.programs
        ],
        "models": list(needs.models),
        "rdma": needs.has_rdma,
        "deployments": scope.deployments,
        "devices": scope.devices and bool(needs.device_indices) and needs.is_nvidia,
    }
    if scope.ports:
        content["ports"] = [{"host": each.process.listen, "port": each.claim.port} for each in needs.ports]
    if scope.peers:
        content["listen"] = meeting.doors(needs)
    return NodeQuestion(node=needs.name, content=content, timeout_s=SURVEY_TIMEOUT_S)


def _facts(reply: NodeReply, needs: NodeNeeds) -> NodeFacts | tuple[Diagnostic, ...]:
    if reply.content is None:
        return reply.faults
    try:
        return read_facts(reply, reply.content, needs)
    except FieldError as error:
        return (Diagnostic(code="PD502", message=f"the shim gave an answer that is not its own: {error}"),)
