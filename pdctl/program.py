"""What an engine or a router has to say about itself; one file each under `engines/` and `routers/`.

Everything here is pure: a program describes processes, an executor runs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from pdctl.diagnostics import Diagnostic
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import PortNeed
from pdctl.topology.model import Role, Router, Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A check of a whole topology; it yields nothing where all is well."""

    code: str
    check: Callable[[Topology], Iterable[Diagnostic]]


class Program(Protocol):
    """An engine (prefill and decode processes) or a router.

    The compiler calls port_needs, then command and ready for every process; the checker calls rules.
    """

    @property
    def owned_flags(self) -> frozenset[str]:
        """Flags, without dashes, that `command` derives: a user who sets one gets an error."""
        ...

    @property
    def requests_metric(self) -> str | None:
        """Name of the Prometheus counter of requests on the `http` port's /metrics."""
        ...

    def port_needs(self, part: Role | Router, topology: Topology) -> tuple[PortNeed, ...]:
        """The ports of one leader process of `part`. The first is the HTTP port and is named `http`."""
        ...

    def command(self, slot: Slot, layout: Layout) -> Command:
        """argv and environment of one process; the only place where they are put together."""
        ...

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        """How to see that the process serves; None where running is enough."""
        ...

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        """argv that must succeed once on each node before a process starts there; empty: nothing to do."""
        ...

    def rules(self) -> tuple[Rule, ...]: ...
