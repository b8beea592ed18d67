"""A real TCP exchange between the nodes of a plan: all listen for a moment, then all dial.

Each node is called once to listen, as part of the survey, and once to dial all its peers. A third call goes
only to nodes that waited in vain, so that their ports are free at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.peers import Call
from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import NodeQuestion
from pdctl.fields import Fields

DIAL_TIMEOUT_S = 3.0  # of one connection
LISTEN_S = 60.0  # at most: until the slowest node has answered, and all have dialled
MET = "met"
NOT_DIALLED = "not dialled"  # one side could not be asked


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """`outcome` as in `runtime/shim/dial.py`, or `NOT_DIALLED`."""

    call: Call
    host: str  # that was dialled
    outcome: str
    text: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A planned port of a node; `ANY_PORT` is one that the node's kernel chooses."""

    node: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """Where a place is dialled. Without a token whoever has the port is enough: the deployment runs."""

    host: str
    port: int
    token: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Meeting:
    calls: tuple[Call, ...]
    token: str  # a stranger on a port does not know it

    def doors(self, needs: NodeNeeds) -> list[dict[str, object]]:
        """Where one node has to listen, as `survey` is told it."""
        host_of = {need.claim.port: need.process.listen for need in needs.ports}
        own_host = next(iter(host_of.values()), needs.address)
        return [
            {
                "host": host_of.get(place.port, own_host),
                "port": place.port,
                "token": self._token(place.node),
                "num_visits": len(callers),
                "lifetime_s": LISTEN_S,
            }
            for place, callers in self._callers(needs.name).items()
        ]

    def hold(
        self, nodes: NodeAccess, answers: Mapping[str, Fields], addresses: Mapping[str, str]
    ) -> tuple[CallOutcome, ...]:
        """Let every node that answered the survey dial those that did; `answers` and addresses by node."""
        targets = {
            place: target
            for name, answer in answers.items()
            for place, door in zip(self._callers(name), answer.objects("listening"), strict=True)
            if (target := self._target(place, door, addresses[name])) is not None
        }
        dialled: dict[str, dict[Place, Target]] = {}
        for call in self.calls:
            place = Place(call.callee, call.port)
            if call.caller in answers and place in targets:
                dialled.setdefault(call.caller, {})[place] = targets[place]
        found: tuple[CallOutcome, ...] = ()
        try:
            outcomes = _dial(nodes, dialled)
            found = tuple(
                CallOutcome(call=call, host=addresses[call.callee], outcome=outcome, text=text)
                for call in self.calls
                for outcome, text in [
                    outcomes.get((call.caller, Place(call.callee, call.port)), (NOT_DIALLED, ""))
                ]
            )
        finally:  # also when the operator has had enough: the ports are wanted for what comes next
            content = {each.call.callee for each in found if each.outcome == MET} - {
                each.call.callee for each in found if each.outcome != MET
            }
            _hang_up(nodes, answers, answers.keys() - content)
        return found

    def _callers(self, callee: str) -> dict[Place, set[str]]:
        """By the place they call, in the order of the calls."""
        found: dict[Place, set[str]] = {}
        for call in self.calls:
            if call.callee == callee:
                found.setdefault(Place(callee, call.port), set()).add(call.caller)
        return found

    def _token(self, node: str) -> str:
        """With the node in it: two nodes behind one address would be told apart."""
        return f"{self.token}-{node}"

    def _target(self, place: Place, door: Fields, address: str) -> Target | None:
        port = door.optional_integer("port")
        if port is not None:
            return Target(host=address, port=port, token=self._token(place.node))
        if door.text("problem") == "taken":
            return Target(host=address, port=place.port, token=None)
        return None  # what is wrong with the address itself, the check of ports tells


def _dial(
    nodes: NodeAccess, dialled: Mapping[str, Mapping[Place, Target]]
) -> dict[tuple[str, Place], tuple[str, str]]:
    """Outcome and its words by caller and place; a caller that is lost meanwhile has none."""
    questions = [
        NodeQuestion(
            node=caller,
            content={
                "targets": [
                    {"host": each.host, "port": each.port, "token": each.token} for each in targets.values()
                ],
                "timeout_s": DIAL_TIMEOUT_S,
            },
        )
        for caller, targets in dialled.items()
    ]
    return {
        (reply.node, place): (outcome.text("outcome"), outcome.text("text"))
        for reply in (nodes.ask("dial", questions) if questions else ())
        if reply.content is not None
        for place, outcome in zip(dialled[reply.node], reply.content.objects("outcomes"), strict=True)
    }


def _hang_up(nodes: NodeAccess, answers: Mapping[str, Fields], waiting: Collection[str]) -> None:
    """What a node's attendant still waits for may never come. It would leave by itself, but later."""
    questions = [
        NodeQuestion(node=name, content=attendant.values)
        for name, answer in answers.items()
        if name in waiting and (attendant := answer.optional_object("attendant")) is not None
    ]
    if questions:
        nodes.ask("hang-up", questions)
