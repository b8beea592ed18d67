"""An executor over any set of nodes that have a shell: everything but how the nodes are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pdctl.diagnostics import DiagnosticError
from pdctl.executors import answers
from pdctl.executors.calls import (
    CommandOutput,
    LogLine,
    LogQuery,
    NodeCommand,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    ProbeRequest,
    StartOutcome,
    StopOutcome,
)
from pdctl.executors.link import NodeLink, unreachable_node
from pdctl.executors.lock_call import ask_holder, give_back_lock, take_lock
from pdctl.executors.shell import UnreachableError
from pdctl.executors.streams import MergedStream, ValueStream
from pdctl.fields import Fields
from pdctl.inventory import Inventory
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.state.lock import LockOutcome, Owner
from pdctl.state.observed import ObservedProcess, ObservedState, UnreachableNode
from pdctl.topology.model import Cluster

SPEC_FORMAT = 1
FAN_OUT = 32  # nodes asked at the same time
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
    ) -> None:
        self._links = tuple(links)
        self._link_of = link_of
        self._find_nodes = find_nodes
        self._locked_on: dict[str, NodeLink] = {}  # by the owner's token

    def acquire(self, cluster: Cluster) -> Inventory:
        return self._find_nodes(cluster)

    def deployments(self) -> tuple[str, ...]:
        found: set[str] = set()
        for answer in _at_once(lambda link: link.call("list", [link.root()]), self._links):
            if not isinstance(answer, UnreachableError):
                found.update(answer.texts("answer"))
        return tuple(sorted(found))

    def observe(self, deployment: str) -> ObservedState:
        processes: list[ObservedProcess] = []
        unreachable: list[UnreachableNode] = []

        def status(link: NodeLink) -> tuple[ObservedProcess, ...]:
            answer = link.call("status", [link.root(), deployment], {"node": link.name})
            return tuple(answers.read_process(entry, link.label) for entry in answer.objects("answer"))

        for link, found in zip(self._links, _at_once(status, self._links), strict=True):
            if isinstance(found, UnreachableError):
                unreachable.append(UnreachableNode(name=link.label, reason=str(found)))
            else:
                processes.extend(found)
        return ObservedState(
            deployment=deployment,
            processes=tuple(sorted(processes, key=lambda process: process.id)),
            unreachable=tuple(unreachable),
        )

    def start(self, plan: LaunchPlan, process: ProcessSpec) -> StartOutcome:
        link = self._link(process.node)
        try:
            answer = link.call("start", [link.root(), plan.name, process.id], spec_json(plan, process))
        except UnreachableError as error:
            return StartOutcome(process_id=process.id, error=f"{link.label} can't be reached: {error}")
        return answers.read_start(answer.object("answer"), process.id, process.digest)

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
            return StopOutcome(process_id=process.id, error=f"{process.node} can't be reached: {error}")

        return self._grouped(processes, lambda process: process.node, stop_on, lost)

    def forget(self, deployment: str) -> tuple[str, ...]:
        kept: set[str] = set()
        results = _at_once(lambda link: link.call("forget", [link.root(), deployment]), self._links)
        for link, answer in zip(self._links, results, strict=True):
            if isinstance(answer, UnreachableError):
                raise unreachable_node(link.label, answer)
            kept.update(answer.object("answer").texts("kept"))
        return tuple(sorted(kept))

    def keep_plan(self, deployment: str, content: bytes) -> None:
        request = {"content": content.decode()}
        self._on_first_reachable(lambda link: link.call("keep", [link.root(), deployment], request))

    def kept_plan(self, deployment: str) -> bytes | None:
        answer = self._on_first_reachable(lambda link: link.call("kept", [link.root(), deployment]))
        content = answer.object("answer").optional_text("content")
        return None if content is None else content.encode()

    def probe(self, requests: Sequence[ProbeRequest]) -> tuple[ProbeAnswer, ...]:
        def probe_on(link: NodeLink, group: Sequence[ProbeRequest]) -> list[ProbeAnswer]:
            limit_s = max(request.timeout_s for request in group) + AFTER_GRACE_S
            request = {"requests": [_probe_json(each) for each in group]}
            answer = link.call("probe", [], request, timeout_s=limit_s)
            return [answers.read_probe(each) for each in answer.objects("answer")]

        def lost(request: ProbeRequest, error: UnreachableError) -> ProbeAnswer:
            return ProbeAnswer(error=f"{request.node} can't be reached: {error}")

        return self._grouped(requests, lambda request: request.node, probe_on, lost)

    def ports(self, queries: Sequence[PortQuery]) -> tuple[PortAnswer, ...]:
        def ports_on(link: NodeLink, group: Sequence[PortQuery]) -> list[PortAnswer]:
            request = {"queries": [{"host": query.host, "port": query.port} for query in group]}
            found = link.call("ports", [], request).objects("answer")
            return [answers.read_port(each, query) for each, query in zip(found, group, strict=True)]

        def lost(query: PortQuery, error: UnreachableError) -> PortAnswer:
            raise unreachable_node(query.node, error) from error

        return self._grouped(queries, lambda query: query.node, ports_on, lost)

    def logs(self, query: LogQuery) -> MergedStream[LogLine]:
        groups: dict[NodeLink, list[str]] = {}
        for process_id, node in query.node_of.items():
            groups.setdefault(self._link(node), []).append(process_id)
        request = {"tail": query.tail, "follow": query.follow}
        return MergedStream(
            [
                self._stream(link, "logs", [query.deployment, *ids], request, answers.read_log_line)
                for link, ids in groups.items()
            ]
        )

    def run(self, command: NodeCommand) -> ValueStream[CommandOutput]:
        link = self._link(command.node)
        request = {"argv": list(command.argv), "env": dict(command.env)}
        return self._stream(link, "run", [], request, answers.read_command_output)

    def lock(self, deployment: str, owner: Owner) -> LockOutcome:
        def take(link: NodeLink) -> LockOutcome:
            outcome = take_lock(link, deployment, owner)
            self._locked_on[owner.token] = link
            return outcome

        return self._on_first_reachable(take)

    def unlock(self, deployment: str, owner: Owner) -> None:
        link = self._locked_on.pop(owner.token, None)
        if link is None:
            self._on_first_reachable(lambda link: give_back_lock(link, deployment, owner))
            return
        # Where it was taken: a node before that one may answer again by now.
        try:
            give_back_lock(link, deployment, owner)
        except UnreachableError as error:
            raise unreachable_node(link.label, error) from error

    def holder(self, deployment: str) -> Owner | None:
        return self._on_first_reachable(lambda link: ask_holder(link, deployment))

    def _link(self, node: str) -> NodeLink:
        link = self._link_of(node)
        if link is None:
            raise DiagnosticError.one(
                "PD504",
                f"the cluster has no node `{node}`",
                help="name it under `cluster.nodes`, or use the topology that started it",
            )
        return link

    def _stream(
        self,
        link: NodeLink,
        verb: str,
        names: Sequence[str],
        request: Mapping[str, object],
        read: Callable[[Fields], T],
    ) -> ValueStream[T]:
        try:
            source = link.follow(verb, [link.root(), *names] if names else [], request)
        except UnreachableError as error:
            raise unreachable_node(link.label, error) from error
        return ValueStream(source, read, label=link.label)

    def _on_first_reachable(self, ask: Callable[[NodeLink], T]) -> T:
        """The lock lies on one node, the first that answers: every operator tries them in the same order."""
        lost: UnreachableError | None = None
        for link in self._links:
            try:
                return ask(link)
            except UnreachableError as error:
                lost = error
        raise unreachable_node("the cluster", lost or UnreachableError("it has no nodes"))

    def _grouped(
        self,
        items: Sequence[Asked],
        node_of: Callable[[Asked], str],
        ask: Callable[[NodeLink, Sequence[Asked]], Sequence[T]],
        lost: Callable[[Asked, UnreachableError], T],
    ) -> tuple[T, ...]:
        """One call per machine for all its items, machines at the same time, answers in the items' order."""
        groups: dict[NodeLink, list[int]] = {}
        for index, item in enumerate(items):
            groups.setdefault(self._link(node_of(item)), []).append(index)
        results = _at_once(lambda link: ask(link, [items[index] for index in groups[link]]), tuple(groups))
        found: dict[int, T] = {}
        for indices, result in zip(groups.values(), results, strict=True):
            if isinstance(result, UnreachableError):
                found.update((index, lost(items[index], result)) for index in indices)
            else:
                found.update(zip(indices, result, strict=True))
        return tuple(found[index] for index in range(len(items)))


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
    }


def _probe_json(request: ProbeRequest) -> Mapping[str, object]:
    return {
        "url": request.url,
        "method": request.method,
        "body": None if request.body is None else request.body.decode(),
        "timeout_s": request.timeout_s,
    }


def _at_once(ask: Callable[[NodeLink], T], links: Sequence[NodeLink]) -> list[T | UnreachableError]:
    """Ask every machine, up to `FAN_OUT` at a time. A lost one is a value, so that the others count."""

    def attempt(link: NodeLink) -> T | UnreachableError:
        try:
            return ask(link)
        except UnreachableError as error:
            return error

    if len(links) == 1:
        return [attempt(links[0])]
    with ThreadPoolExecutor(max_workers=FAN_OUT) as pool:
        return list(pool.map(attempt, links))
