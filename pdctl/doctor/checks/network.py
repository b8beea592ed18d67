"""Do nodes reach each other on the ports that they will use? Told by pairs, folded on both sides."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from pdctl.doctor.meeting import MET, NOT_DIALLED, CallOutcome
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.peers import ANY_PORT
from pdctl.doctor.survey import Survey
from pdctl.hostlist import fold

NETWORK = Topic("network")
_CODE_OF = {"stranger": "PD724", "stalled": "PD726"}
_HELP_OF = {
    "PD723": "open these ports between the nodes, in all firewalls on the way, or correct `address`",
    "PD724": "give every node an address of its own, one that means the same everywhere",
    "PD725": "open all high ports between the nodes: KV cache goes over ports that are drawn at start",
    "PD726": "set one MTU on all interfaces and switches of the path: `ip link` shows it",
}


def check_network(survey: Survey) -> Iterator[Finding]:
    if not survey.scope.peers:
        return
    by_caller: dict[str, list[CallOutcome]] = defaultdict(list)
    for outcome in survey.calls:
        by_caller[outcome.call.caller].append(outcome)
    met = {(each.call.caller, each.call.callee) for each in survey.calls if each.outcome == MET}
    for needs, _facts in survey.answered:
        calls = by_caller.get(needs.name, [])
        failed = [each for each in calls if each.outcome not in (MET, NOT_DIALLED)]
        yield from _failures(needs.name, failed, met)
        if not calls:
            yield NETWORK.skipped(needs.name, "it calls no other node")
        elif not failed:
            yield _whole(needs.name, calls)


def _whole(node: str, calls: Sequence[CallOutcome]) -> Finding:
    num_undialled = sum(each.outcome == NOT_DIALLED for each in calls)
    if num_undialled == len(calls):
        return NETWORK.skipped(node, "its peers could not be asked to listen")
    rest = " that could be asked" if num_undialled else ""
    return NETWORK.ok(node, f"reaches all peers{rest} on their ports")


def _failures(node: str, failed: Sequence[CallOutcome], met: set[tuple[str, str]]) -> Iterator[Finding]:
    """Callees that fail alike share a line, with the ports on which they do."""
    ports_of: dict[tuple[str, str], list[int]] = defaultdict(list)  # by callee and words
    code_of: dict[tuple[str, str], str] = {}
    for each in failed:
        key = (each.call.callee, each.text)
        ports_of[key].append(each.call.port)
        code_of[key] = _CODE_OF.get(each.outcome, "PD723")
    callees_of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (callee, text), ports in ports_of.items():
        code = (
            "PD725"
            if set(ports) == {ANY_PORT} and code_of[callee, text] == "PD723"
            else code_of[callee, text]
        )
        callees_of[code, text, _port_words(ports)].append(callee)
    for (code, text, ports), callees in callees_of.items():
        notes = _way_back(node, callees, met) if code in ("PD723", "PD725") else ()
        yield _failure(node, code, f"{fold(callees)} on {ports}: {text}", notes)


def _failure(node: str, code: str, where: str, notes: tuple[str, ...]) -> Finding:
    """High ports may be blocked for good where a backend is told which ones to use: a warning."""
    say = NETWORK.warning if code == "PD725" else NETWORK.error
    return say(node, code, f"no way to {where}", notes=notes, help=_HELP_OF[code])


def _way_back(node: str, callees: Sequence[str], met: set[tuple[str, str]]) -> tuple[str, ...]:
    """What tells a firewall from a cable."""
    if all((callee, node) in met for callee in callees):
        return ("the other way round connections pass",)
    if any((node, callee) in met for callee in callees):
        return ("other ports of theirs are reached",)
    return ()


def _port_words(ports: Sequence[int]) -> str:
    """`ports 8998, 30000 and any high port`."""
    named = sorted({port for port in ports if port != ANY_PORT})
    words = [f"port{'' if len(named) == 1 else 's'} {', '.join(map(str, named))}"] if named else []
    return " and ".join([*words, *(["any high port"] if ANY_PORT in ports else [])])
