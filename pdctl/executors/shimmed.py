"""An executor over any set of nodes that have a shell: everything but how the nodes are found."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from pdctl.executors import answers, look_call
from pdctl.executors.ask_call import ask_node
from pdctl.executors.calls import (
    CommandOutput,
    ForgetOutcome,
    LogQuery,
    LookQuery,
    NodeCommand,
    NodeQuestion,
    NodeReply,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    Remains,
    Sight,
    Standing,
    StartOutcome,
    StopOutcome,
)
from pdctl.executors.deputy import Deputy
from pdctl.executors.fan_out import FAN_OUT
from pdctl.executors.kept_plan import NUM_COPIES, Kept, ask_kept, keep_on, newest
from pdctl.executors.link import CALL_TIMEOUT_S, NodeLink, VerbCall, lost_node, unreachable_node
from pdctl.executors.lock_call import ask_standing, give_back_lock, take_lock
from pdctl.executors.log_stream import LogItem, LogRequest, NodeLogs
from pdctl.executors.lost import LostNodes
from pdctl.executors.machines import Machines
from pdctl.executors.shell import UnreachableError
from pdctl.executors.streams import MergedStream, ValueStream
from pdctl.fields import Fields
from pdctl.inventory import Inventory
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.audit import AuditEntry, readable_entries
from pdctl.state.audit import merged as merged_history
from pdctl.state.lock import Acquired, Held, LockOutcome, Owner, is_dead
from pdctl.state.observed import ObservedProcess, ObservedState, UnreachableNode
from pdctl.state.pending import PendingNode
from pdctl.topology.model import Cluster

SPEC_FORMAT = 1
AFTER_GRACE_S = 30.0  # KILL, verification, the shim's own end

T = TypeVar("T")
Asked = TypeVar("Asked")


class ShimmedExecutor:
    """`links` are the distinct machines; `link_of` gives a node's, None where there is no such node."""

    def __init__(
        self,
        *,
        links: Sequence[NodeLink],
        link_of: Callable[[str], NodeLink | None],
        find_nodes: Callable[[Cluster], Inventory],
        fan_out: int = FAN_OUT,
        lost: LostNodes | None = None,
    ) -> None:
        self._machines = Machines(links=links, link_of=link_of, fan_out=fan_out, lost=lost or LostNodes())
        self._find_nodes = find_nodes
        self._locked_on: dict[str, NodeLink] = {}  # by the owner's token

    def acquire(self, cluster: Cluster) -> Inventory:
        return self._find_nodes(cluster)

    def deputy(self, deployment: str) -> Deputy | None:
        """Its nodes are worked on from here."""
        return None

    def deployments(self) -> tuple[str, ...]:
        found: set[str] = set()
        for answer in self._machines.ask_all(lambda link: link.call("list", [link.root()])):
            if not isinstance(answer, UnreachableError):
                found.update(answer.texts("answer"))
        return tuple(sorted(found))

    def observe(self, deployment: str) -> ObservedState:
        return self.look(LookQuery(deployment=deployment)).state

    def look(self, query: LookQuery) -> Sight:
        """A machine that can't answer, for whatever reason, must not hide what stands on the others."""
        shares = {share.link: share for share in look_call.shares_of(query, self._machines)}
        found = self._machines.ask_each(lambda link: look_call.look_on(shares[link]), tuple(shares))
        return look_call.merged(query, tuple(shares.values()), found, since_s=self._machines.since_s)

    def start(self, plan: LaunchPlan, processes: Sequence[ProcessSpec]) -> tuple[StartOutcome, ...]:
        def start_on(link: NodeLink, group: Sequence[ProcessSpec]) -> list[StartOutcome]:
            calls = [
                VerbCall(verb="start", names=(link.root(), plan.name, each.id), request=spec_json(plan, each))
                for each in group
            ]
            found = link.call_again(calls, timeout_s=CALL_TIMEOUT_S + len(group))
            return [
                answers.read_start(answer.object("answer"), each.id, each.digest)
                for answer, each in zip(found, group, strict=True)
            ]

        def lost(process: ProcessSpec, error: UnreachableError) -> StartOutcome:
            error_text = f"{process.node} can't be reached: {error}"
            return StartOutcome(process_id=process.id, error=error_text, is_unreachable=True)

        return self._machines.grouped(processes, lambda process: process.node, start_on, lost)

    def stop(
        self, deployment: str, processes: Sequence[ObservedProcess], *, grace_s: float | None = None
    ) -> tuple[StopOutcome, ...]:
        def stop_on(link: NodeLink, group: Sequence[ObservedProcess]) -> list[StopOutcome]:
            ids = [process.id for process in group]
            request = {"grace_s": None if grace_s is None else dict.fromkeys(ids, grace_s)}
            longest_s = max(process.grace_s for process in group) if grace_s is None else grace_s
            answer = link.call(
                "stop", [link.root(), deployment, *ids], request, timeout_s=longest_s + AFTER_GRACE_S
            )
            return [answers.read_stop(each) for each in answer.objects("answer")]

        def lost(process: ObservedProcess, error: UnreachableError) -> StopOutcome:
            error_text = f"{process.node} can't be reached: {error}"
            return StopOutcome(process_id=process.id, error=error_text, is_unreachable=True)

        return self._machines.grouped(processes, lambda process: process.node, stop_on, lost)

    def prove(
        self, deployment: str, queries: Sequence[PortQuery], pids: Mapping[str, Sequence[int]]
    ) -> tuple[Remains, ...]:
        ports: dict[NodeLink, list[PortQuery]] = {link: [] for link in self._machines.links}
        known: dict[NodeLink, list[int]] = {link: [] for link in self._machines.links}
        for query in queries:
            ports[self._machines.link(query.node)].append(query)
        for node, of_node in pids.items():
            known[self._machines.link(node)].extend(of_node)

        def prove_on(link: NodeLink) -> Remains:
            asked = [{"host": query.host, "port": query.port} for query in ports[link]]
            request = {"queries": asked, "pids": known[link]}
            answer = link.call("prove", [link.root(), deployment], request)
            return answers.read_remains(answer.object("answer"), link.label, ports[link])

        return tuple(
            Remains(node=link.label, unproven=f"it can't be reached: {found}")
            if isinstance(found, UnreachableError)
            else found
            for link, found in zip(self._machines.links, self._machines.ask_all(prove_on), strict=True)
        )

    def forget(self, deployment: str, *, keeps_plan: bool = False) -> ForgetOutcome:
        kept: set[str] = set()
        unreachable: list[UnreachableNode] = []

        def forget_on(link: NodeLink) -> Fields:
            request = {"node": link.name, "keeps_plan": keeps_plan}
            return link.call("forget", [link.root(), deployment], request)

        results = self._machines.ask_all(forget_on)
        for link, answer in zip(self._machines.links, results, strict=True):
            if isinstance(answer, UnreachableError):
                unreachable.append(lost_node(link.label, answer))
            else:
                kept.update(answer.object("answer").texts("kept"))
        return ForgetOutcome(kept=tuple(sorted(kept)), unreachable=tuple(unreachable))

    def tidy(self) -> None:
        """A node that can't be reached keeps a small script, for the next act to take away."""
        self._machines.ask_each(NodeLink.tidy)

    def keep_plan(self, deployment: str, content: bytes, *, pending: Sequence[PendingNode] = ()) -> None:
        lost = {node.name for node in pending}
        links = [link for link in self._machines.links if link.name not in lost][:NUM_COPIES]
        before = newest(self._machines.ask_all(lambda link: ask_kept(link, deployment), links))
        generation = 1 if before is None else before.integer("generation") + 1
        kept = self._machines.ask_all(
            lambda link: keep_on(link, deployment, content, generation=generation, pending=pending), links
        )
        if all(isinstance(each, UnreachableError) for each in kept):
            raise unreachable_node("the cluster", UnreachableError("no node can keep the plan"))

    def kept_plan(self, deployment: str) -> bytes | None:
        """From the nodes that should have it; from all others only when none of those answers."""
        found: list[Kept] = []
        for links in (self._machines.links[:NUM_COPIES], self._machines.links[NUM_COPIES:]):
            found += self._machines.ask_all(lambda link: ask_kept(link, deployment), links)
            if any(isinstance(each, Fields) for each in found):
                break
        else:
            raise unreachable_node("the cluster", _first_loss(found))
        plan = newest(found)
        return None if plan is None else plan.text("content").encode()

    def note(self, deployment: str, entry: AuditEntry) -> None:
        request = {"entry": entry.to_json()}
        self._machines.on_first_reachable(lambda link: link.call("note", [link.root(), deployment], request))

    def history(self, deployment: str) -> tuple[AuditEntry, ...]:
        """From all nodes that may have been the first one that answers."""
        entries: list[AuditEntry] = []
        links = self._machines.links[:NUM_COPIES]
        for answer in self._machines.ask_all(
            lambda link: link.call("history", [link.root(), deployment]), links
        ):
            if isinstance(answer, Fields):
                entries += readable_entries(answer.objects("answer"))
        return merged_history(entries)

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        def probe_on(link: NodeLink, group: Sequence[ProbeRequest]) -> list[ProbeAnswer]:
            limit_s = max(request.timeout_s for request in group) + AFTER_GRACE_S
            request = {"requests": [look_call.probe_json(each) for each in group]}
            answer = link.call("probe", [], request, timeout_s=limit_s)
            return [answers.read_probe(each) for each in answer.objects("answer")]

        def lost(request: ProbeRequest, error: UnreachableError) -> ProbeAnswer:
            return ProbeAnswer(error=f"{request.node} can't be reached: {error}")

        return self._machines.grouped(requests, lambda request: request.node, probe_on, lost)

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        def ports_on(link: NodeLink, group: Sequence[PortQuery]) -> list[PortAnswer]:
            request = {"queries": [{"host": query.host, "port": query.port} for query in group]}
            found = link.call("ports", [], request).objects("answer")
            return [answers.read_port(each, query) for each, query in zip(found, group, strict=True)]

        def lost(query: PortQuery, error: UnreachableError) -> PortAnswer:
            return PortAnswer(query=query, problem=str(error), is_unreachable=True)

        return self._machines.grouped(queries, lambda query: query.node, ports_on, lost)

    def ask(self, verb: str, questions: Sequence[NodeQuestion]) -> tuple[NodeReply, ...]:
        def ask_on(link: NodeLink, group: Sequence[NodeQuestion]) -> list[NodeReply]:
            return ask_node(link, verb, group)

        def lost(question: NodeQuestion, error: UnreachableError) -> NodeReply:
            return NodeReply(node=question.node, faults=unreachable_node(question.node, error).diagnostics)

        return self._machines.grouped(questions, lambda question: question.node, ask_on, lost)

    def logs(self, query: LogQuery) -> MergedStream[LogItem]:
        groups: dict[NodeLink, list[str]] = {}
        for process_id, node in query.node_of.items():
            groups.setdefault(self._machines.link(node), []).append(process_id)
        sources = [
            NodeLogs(
                link,
                LogRequest(
                    deployment=query.deployment,
                    process_ids=tuple(ids),
                    tail=query.tail,
                    follow=query.follow,
                ),
            )
            for link, ids in groups.items()
        ]
        return MergedStream[LogItem](
            sources, overdue=lambda: [notice for source in sources for notice in source.overdue()]
        )

    def run(self, command: NodeCommand) -> ValueStream[CommandOutput]:
        link = self._machines.link(command.node)
        request = {"argv": list(command.argv), "env": dict(command.env)}
        try:
            source = link.follow("run", [], request)
        except UnreachableError as error:
            raise unreachable_node(link.label, error) from error
        return ValueStream(source, answers.read_command_output, label=link.label)

    def lock(self, deployment: str, owner: Owner, *, anywhere: bool = False) -> LockOutcome:
        lost: list[str] = []
        links = self._machines.links[: NUM_COPIES if anywhere else 1]
        for index, link in enumerate(links):
            try:
                outcome = take_lock(link, deployment, owner)
            except UnreachableError as error:
                lost.append(link.label)
                if len(lost) == len(links):
                    raise unreachable_node(", ".join(lost), error) from error
                continue
            if isinstance(outcome, Acquired):
                self._locked_on[owner.token] = link
                elsewhere = self._held_elsewhere(
                    deployment, owner, links=self._machines.links[index + 1 : NUM_COPIES]
                )
                if elsewhere is not None:
                    self.unlock(deployment, owner)
                    return Held(holder=elsewhere)
                return replace(outcome, instead_of=tuple(lost))
            return outcome
        raise AssertionError("there is at least one node")

    def _held_elsewhere(self, deployment: str, owner: Owner, *, links: Sequence[NodeLink]) -> Owner | None:
        """Who took the lock on a later node, when those before it could not be reached for a while.

        Nodes that share a file system show the owner's own lock.
        """
        for found in self._machines.ask_all(lambda link: ask_standing(link, deployment), links):
            holder = found.holder if isinstance(found, Standing) else None
            if holder is not None and holder.token != owner.token and not is_dead(holder):
                return holder
        return None

    def unlock(self, deployment: str, owner: Owner) -> None:
        """Where it was taken; of another run's lock, on every node that may have it."""
        link = self._locked_on.pop(owner.token, None)
        links = self._machines.links[:NUM_COPIES] if link is None else (link,)
        found = self._machines.ask_all(lambda link: give_back_lock(link, deployment, owner), links)
        if all(isinstance(each, UnreachableError) for each in found):
            raise unreachable_node(links[0].label, _first_loss(found))

    def standing(self, deployment: str) -> Standing:
        """From all nodes that may have the lock; of several holders, the first node's."""
        found = self._machines.ask_all(
            lambda link: ask_standing(link, deployment), self._machines.links[:NUM_COPIES]
        )
        answered = [each for each in found if isinstance(each, Standing)]
        if not answered:
            raise unreachable_node("the cluster", _first_loss(found))
        pending = dict.fromkeys(node for each in answered for node in each.pending)
        holder = next((each.holder for each in answered if each.holder is not None), None)
        return Standing(holder=holder, pending=tuple(pending))

    def holder(self, deployment: str) -> Owner | None:
        """A holder that is provably dead holds nothing: the next operator gets the lock."""
        found = self.standing(deployment).holder
        return None if found is None or is_dead(found) else found


def _first_loss(found: Sequence[object]) -> UnreachableError:
    return next((each for each in found if isinstance(each, UnreachableError)), UnreachableError("no nodes"))


def spec_json(plan: LaunchPlan, process: ProcessSpec) -> dict[str, object]:
    """What the shim is told: all it needs, and enough to find a deployment again without any record."""
    return {
        "format": SPEC_FORMAT,
        "deployment": plan.name,
        "plan_digest": plan.digest,
        "process_id": process.id,
        "instance_id": process.instance_id,
        "role": process.role.value,
        "node": process.node,
        "digest": process.digest,
        "argv": list(process.argv),
        "env": dict(process.env),
        "grace_s": process.grace_s,
        "start_id": uuid.uuid4().hex,  # asked for again after a lost answer, it is still one start
    }
