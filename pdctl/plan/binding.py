"""Addresses that only an allocation knows, in a plan that is made before it.

A plan weaves addresses into words: `--dist-init-addr ADDRESS:20000`, `http://ADDRESS:30000`. One that is
compiled with marks in their place says exactly where they stand, so that whoever knows the nodes can put them
in, without understanding a single flag. Pure.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from pdctl.inventory import Inventory
from pdctl.topology.model import AUTO, Cluster, Host

# Plain ASCII letters, so that it passes as a host name everywhere: through JSON, URLs, `HOST:PORT`.
_MARK = re.compile(r"pdctl--address--(\d+)--")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAddress:
    """Stands for the address of one node."""

    number: int  # of the node, as the inventory counts them: from 0


Part = str | NodeAddress


def marked(inventory: Inventory, cluster: Cluster) -> Inventory:
    """`inventory` with a mark for each address that `cluster` leaves open.

    Names stay as they are: roles may be placed by them.
    """
    hosts: tuple[Host | None, ...] = (
        (None,) * len(inventory.nodes) if isinstance(cluster.nodes, int) else cluster.nodes
    )
    return Inventory(
        nodes=tuple(
            replace(node, address=f"pdctl--address--{number}--")
            if host is None or host.address in (None, AUTO)
            else node
            for number, (node, host) in enumerate(zip(inventory.nodes, hosts, strict=True))
        )
    )


def parts_of(text: str) -> tuple[Part, ...]:
    """Text and the addresses in it, in turn; no part is empty text."""
    found: list[Part] = []
    at = 0
    for match in _MARK.finditer(text):
        found += [text[at : match.start()], NodeAddress(number=int(match[1]))]
        at = match.end()
    return tuple(part for part in (*found, text[at:]) if part != "")
