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
# where an outgoing connection could take one at any time.
PREFILL_HTTP_BASE = 30000
DECODE_HTTP_BASE = 30100
BOOTSTRAP_BASE = 8998  # SGLang's default, which routers assume when a prefill entry names none
ROUTER_HTTP_PORT = 8000
ROUTER_METRICS_PORT = 29000  # sglang-router's default; a taken one ends it at start

HIGHEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class PortNeed:
    """One port of a process. Instances of a role on one node take `base`, `base + stride`, …

    A requested port (the document names it) is taken as it is: a clash is an error. A default moves on to
    the next free one.
    """

    name: str
    base: int
    stride: int = 1
    requested: bool = False
    path: tuple[str, ...] = ()  # the document's key that names it


@dataclass(frozen=True, slots=True, kw_only=True)
class PortAssignment:
    slots: tuple[Slot, ...]  # with their ports
    diagnostics: tuple[Diagnostic, ...]


def assign_ports(
    source: SourceMap, slots: Sequence[Slot], needs: Mapping[RoleKind, tuple[PortNeed, ...]]
) -> PortAssignment:
    """Give every leader its ports. Requested ones go first, so that no default takes one of them."""
    ledger = _Ledger(source=source)
    requests = sorted(_requests(slots, needs), key=lambda request: not request.need.requested)
    claims: dict[str, dict[str, PortClaim]] = defaultdict(dict)
    for request in requests:
        port = ledger.claim(request)
        if port is not None:
            claims[request.slot.id][request.need.name] = PortClaim(name=request.need.name, port=port)
    placed = tuple(
        replace(slot, ports=tuple(claims[slot.id][need.name] for need in needs[slot.role]))
        if slot.is_leader and len(claims[slot.id]) == len(needs[slot.role])
        else slot
        for slot in slots
    )
    return PortAssignment(slots=placed, diagnostics=tuple(ledger.faults))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    slot: Slot
    need: PortNeed
    index: int  # of this instance among those of its role at the same address


def _requests(slots: Sequence[Slot], needs: Mapping[RoleKind, tuple[PortNeed, ...]]) -> Iterator[_Request]:
    num_before: Counter[tuple[RoleKind, str]] = Counter()
    for slot in slots:
        if slot.is_leader:
            index = num_before[slot.role, slot.node.address]
            num_before[slot.role, slot.node.address] += 1
            for need in needs[slot.role]:
                yield _Request(slot=slot, need=need, index=index)


@dataclass(slots=True, kw_only=True)
class _Ledger:
    """The claims by address: nodes that share an address share its ports."""

    source: SourceMap
    owners: dict[tuple[str, int], str] = field(default_factory=dict[tuple[str, int], str])
    faults: list[Diagnostic] = field(default_factory=list[Diagnostic])

    def claim(self, request: _Request) -> int | None:
        """Take a port and return it; None after noting the fault."""
        need, owner, address = request.need, request.slot.id, request.slot.node.address
        port = need.base + request.index * need.stride
        if not need.requested:
            while (address, port) in self.owners:
                port += need.stride
        if port > HIGHEST_PORT:
            self._fault(
                need,
                code="PD405",
                message=f"`{owner}` would get {need.name} port {port}, above {HIGHEST_PORT}",
                help=f"start lower than {need.base}, or put fewer instances on one node",
            )
            return None
        holder = self.owners.setdefault((address, port), owner)
        if holder != owner:
            self._fault(
                need,
                code="PD404",
                message=f"`{owner}` and `{holder}` both claim port {port} on {address}",
                help=f"set `{'.'.join(need.path)}` to a range of its own",
                notes=(f"instances of one role on one node count up from {need.base}",),
            )
            return None
        return port

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
