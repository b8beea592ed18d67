"""One look at a deployment: states, probes and last lines of each machine, asked together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors import answers
from pdctl.executors.calls import LookQuery, ProbeAnswer, ProbeRequest, Sight
from pdctl.executors.link import CALL_TIMEOUT_S, NodeLink, VerbCall, lost_node
from pdctl.executors.machines import Machines
from pdctl.executors.shell import UnreachableError
from pdctl.state.observed import ObservedProcess, ObservedState, UnreachableNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What one machine is asked; `indices` are the places of its probes among all."""

    link: NodeLink
    query: LookQuery
    indices: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenShare:
    processes: tuple[ObservedProcess, ...]
    answers: tuple[ProbeAnswer, ...]
    tails: Mapping[str, tuple[str, ...]]


def shares_of(query: LookQuery, machines: Machines) -> tuple[Share, ...]:
    """Each machine's part of the query. All are asked for their processes, also those without a probe."""
    links = machines.links
    if query.nodes is not None:
        links = tuple(dict.fromkeys(map(machines.link, query.nodes)))
    indices: dict[NodeLink, list[int]] = {link: [] for link in links}
    tail_of: dict[NodeLink, dict[str, str]] = {link: {} for link in links}
    for index, request in enumerate(query.probes):
        indices[machines.link(request.node)].append(index)
    for process_id, node in query.tail_of.items():
        tail_of[machines.link(node)][process_id] = node
    return tuple(
        Share(
            link=link,
            query=LookQuery(
                deployment=query.deployment,
                probes=tuple(query.probes[index] for index in indices[link]),
                tail_of=tail_of[link],
                num_lines=query.num_lines,
                device_memory=query.device_memory,
                settle_s=query.settle_s,
            ),
            indices=tuple(indices[link]),
        )
        for link in links
    )


def look_on(share: Share) -> SeenShare:
    link, query = share.link, share.query
    place = (link.root(), query.deployment)
    asked: dict[str, object] = {"node": link.name}
    if query.device_memory:
        asked["devices"] = True
    if query.settle_s:
        asked["settle_s"] = query.settle_s
    calls = [VerbCall(verb="status", names=place, request=asked)]
    if query.probes:
        requests = [probe_json(each) for each in query.probes]
        calls.append(VerbCall(verb="probe", request={"requests": requests}))
    if query.tail_of:
        request = {"process_ids": list(query.tail_of), "num_lines": query.num_lines}
        calls.append(VerbCall(verb="tails", names=place, request=request))
    longest_s = max((request.timeout_s for request in query.probes), default=0.0)
    found = iter(link.call_all(calls, timeout_s=CALL_TIMEOUT_S + query.settle_s + longest_s))
    return SeenShare(
        processes=tuple(answers.read_process(entry, link.label) for entry in next(found).objects("answer")),
        answers=tuple(map(answers.read_probe, next(found).objects("answer"))) if query.probes else (),
        tails=answers.read_tails(next(found).object("answer")) if query.tail_of else {},
    )


def merged(
    query: LookQuery,
    shares: Sequence[Share],
    found: Sequence[SeenShare | Exception],
    *,
    since_s: Callable[[NodeLink], float],
) -> Sight:
    processes: list[ObservedProcess] = []
    unreachable: list[UnreachableNode] = []
    by_index: dict[int, ProbeAnswer] = {}
    tails: dict[str, tuple[str, ...]] = dict.fromkeys(query.tail_of, ())
    for share, seen in zip(shares, found, strict=True):
        if isinstance(seen, Exception):
            node = _lost(share.link, seen, since_s(share.link))
            unreachable.append(node)
            by_index.update(
                (index, ProbeAnswer(error=f"{node.name} can't be reached: {node.reason}"))
                for index in share.indices
            )
        else:
            processes.extend(seen.processes)
            by_index.update(zip(share.indices, seen.answers, strict=True))
            tails |= seen.tails
    state = ObservedState(
        deployment=query.deployment,
        # A process that has moved may have ended on one node and live on another: the living one counts.
        processes=tuple(sorted(processes, key=lambda process: (process.id, process.phase.is_alive))),
        unreachable=tuple(unreachable),
    )
    return Sight(state=state, answers=tuple(by_index[index] for index in range(len(by_index))), tails=tails)


def probe_json(request: ProbeRequest) -> Mapping[str, object]:
    return {
        "url": request.url,
        "method": request.method,
        "body": None if request.body is None else request.body.decode(),
        "timeout_s": request.timeout_s,
    }


def _lost(link: NodeLink, error: Exception, since_s: float) -> UnreachableNode:
    """A shim that can't answer (no Python, a full disk) leaves us as ignorant as a cut cable."""
    match error:
        case UnreachableError():
            return lost_node(link.label, error, since_s=since_s)
        case DiagnosticError():
            fault: Diagnostic = error.diagnostics[0]
            return UnreachableNode(name=link.label, reason=fault.message, fault=fault)
        case _:
            raise error
