"""Which port each process gets: default bases, and the ledger that no two processes share one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pdctl.diagnostics import Diagnostic
from pdctl.plan.layout import Slot
from pdctl.plan.model import PortClaim, RoleKind
from pdctl.topology.source import SourceMap

# Bases of the port families, here and nowhere else. They lie below Linux's ephemeral range (32768 to 60999),
# where an outgoing connection could take one at any time, and outside the ranges from which processes of
# SGLang draw: 15000 to 17000 (Mooncake's RPC, `include/config.h`), 22000 to 29999
# (`get_free_port_below_ephemeral`) and 49152 up (pyzmq).
PREFILL_HTTP_BASE = 30000
DECODE_HTTP_BASE = 30100
BOOTSTRAP_BASE = 8998  # SGLang's default, which routers assume when a prefill entry names none
DIST_INIT_BASE = 20000  # torch's rendezvous of an instance on several nodes
NCCL_BASE = 21000  # the same of an instance on one node
ASCEND_STORE_BASE = 19000
TCP_STORE_BASE = 20900  # SGLang's own 29600 lies where it draws NCCL's ports
ROUTER_HTTP_PORT = 8000
ROUTER_METRICS_PORT = 18000  # sglang-router's own default, 29000, lies where servers draw from

FIRST_EPHEMERAL_PORT = 32768
HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class Companion:
    """A port that a program takes unasked, at a fixed distance from one that it was given."""

    name: str
    offset: int
    node_rank: int = 0  # of the process of the instance that takes it


@dataclass(frozen=True, slots=True, kw_only=True)
class PortNeed:
    """One port of a process. Instances of a role on one node take `base`, `base + stride`, …

    A requested port (the document names it) is taken as it is: a clash is an error. A default moves on to
    the next one that is free together with its companions.
    """

    name: str
    base: int
    stride: int = 1
    requested: bool = False
    path: tuple[str, ...] = ()  # the document's key that names it
    companions: tuple[Companion, ...] = ()
    on_every_node: bool = False  # followers of the instance listen on the same number
    only_first: bool = False  # the role's first instance alone has it

    def candidates(self, index: int) -> Iterator[int]:
        """Ports to try, in order, for the instance that is number `index` at its address."""
        first = self.base + index * self.stride
        if self.requested:
            yield first
            return
        end = FIRST_EPHEMERAL_PORT if self.base < FIRST_EPHEMERAL_PORT else HIGHEST_PORT + 1
        yield from range(first, end, self.stride)
        yield from range(self.base + 1, end)

    def claims(self, port: int, node_rank: int = 0) -> tuple[PortClaim, ...]:
        """What the process of that rank listens on, when the leader is given `port`."""
        has_port = node_rank == 0 or self.on_every_node
        own = (PortClaim(name=self.name, port=port),) if has_port else ()
        companions = (
            PortClaim(name=each.name, port=port + each.offset)
            for each in self.companions
            if each.node_rank == node_rank
        )
        return (*own, *companions)


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAssignment:
    slots: tuple[Slot, ...]  # with their ports
    diagnostics: tuple[Diagnostic, ...]


def assign_ports(
    source: SourceMap, slots: Sequence[Slot], needs: Mapping[RoleKind, tuple[PortNeed, ...]]
) -> PortAssignment:
    """Give every process its ports. Requested ones go first, so that no default takes one of them."""
    ledger = _Ledger(source=source)
    requests = sorted(_requests(slots, needs), key=lambda request: not request.need.requested)
    claims: dict[str, dict[str, tuple[PortClaim, ...]]] = defaultdict(dict)
    for request in requests:
        port = ledger.claim(request)
        if port is None:
            continue
        claims[request.slot.id][request.need.name] = request.need.claims(port)
        for follower in request.followers:
            claims[follower.id][request.need.name] = request.need.claims(port, follower.node_rank)
    return PortAssignment(
        slots=tuple(
            replace(slot, ports=tuple(_in_order(claims[slot.id], needs[slot.role]))) for slot in slots
        ),
        diagnostics=tuple(ledger.faults),
    )


def _in_order(claims: Mapping[str, tuple[PortClaim, ...]], needs: Sequence[PortNeed]) -> Iterator[PortClaim]:
    for need in needs:
        yield from claims.get(need.name, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    slot: Slot  # the leader
    need: PortNeed
    index: int  # of this instance among those of its role at the same address
    followers: tuple[Slot, ...]


def _requests(slots: Sequence[Slot], needs: Mapping[RoleKind, tuple[PortNeed, ...]]) -> Iterator[_Request]:
    num_before: Counter[tuple[RoleKind, str]] = Counter()
    followers: dict[str, list[Slot]] = defaultdict(list)
    for slot in slots:
        if not slot.is_leader:
            followers[slot.instance_id].append(slot)
    for slot in slots:
        if slot.is_leader:
            index = num_before[slot.role, slot.node.address]
            num_before[slot.role, slot.node.address] += 1
            for need in needs[slot.role]:
                if need.only_first and slot.index > 0:
                    continue
                also = tuple(followers[slot.instance_id])
                yield _Request(slot=slot, need=need, index=index, followers=also)


@dataclass(slots=True, kw_only=True)
class _Ledger:
    """The claims by address: nodes that share an address share its ports."""

    source: SourceMap
    owners: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def claim(self, request: _Request) -> int | None:
        """Take a port with its companions and return it; None after noting the fault."""
        need, owner = request.need, request.slot.id
        for port in need.candidates(request.index):
            places = _places(request, port)
            highest = max(number for _, number in places)
            if highest > HIGHEST_PORT:
                self._fault(
                    need,
                    code="PD405",
                    message=f"`{owner}` would get {need.name} ports up to {highest}, above {HIGHEST_PORT}",
                    help=f"start lower than {need.base}, or put fewer instances on one node",
                )
                return None
            taken = next((place for place in places if place in self.owners), None)
            if taken is None:
                self.owners.update(places)
                return port
            if need.requested:
                self._clash(request, taken, claimant=places[taken])
                return None
        self._fault(
            need,
            code="PD405",
            message=f"`{owner}` finds no {need.name} port free from {need.base} up",
            help="put fewer instances on one node",
        )
        return None

    def _clash(self, request: _Request, taken: tuple[str, int], *, claimant: str) -> None:
        address, port = taken
        need, holder = request.need, self.owners[taken]
        self._fault(
            need,
            code="PD404",
            message=f"`{claimant}` claims port {port} on {address} twice"
            if claimant == holder
            else f"`{claimant}` and `{holder}` both claim port {port} on {address}",
            help=f"set `{'.'.join(need.path)}` to a range of its own",
            notes=(
                f"instances of one role on one node count up from {need.base} in steps of {need.stride}"
                if need.stride
                else f"all instances are told the same {need.name} port",
                *_companion_notes(need, need.base + request.index * need.stride, port),
            ),
        )

    def _fault(
        self, need: PortNeed, *, code: str, message: str, help: str, notes: tuple[str, ...] = ()
    ) -> None:
        self.faults.append(
            Diagnostic(
                code=code,
                message=message,
                span=self.source.value(*need.path) if need.path else None,
                path=".".join(need.path) or None,
                notes=notes,
                help=help,
            )
        )


def _places(request: _Request, port: int) -> dict[tuple[str, int], str]:
    """Address and number of everything that comes with `port`, and the process that listens there."""
    places: dict[tuple[str, int], str] = {}
    for slot in (request.slot, *request.followers):
        for claim in request.need.claims(port, slot.node_rank):
            # Nodes may share an address; then one listener of the number is all there can be.
            places.setdefault((slot.node.address, claim.port), slot.id)
    return places


def _companion_notes(need: PortNeed, base: int, port: int) -> tuple[str, ...]:
    return tuple(
        f"it takes {each.name} port {base + each.offset} with {need.name} port {base}"
        for each in need.companions
        if base + each.offset == port
    )
