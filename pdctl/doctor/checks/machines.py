"""Are nodes of different names different machines? Each is planned as if its ports were its own."""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Iterator, Sequence

from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.survey import Survey
from pdctl.hostlist import fold

MACHINES = Topic("machines")
_HELP = "correct `address` or `ssh.host` of one, or list the machine once: several instances fit on a node"


def check_machines(survey: Survey) -> Iterator[Finding]:
    """Several addresses of one machine, with nothing in common, are as good as machines."""
    if survey.plan.executor == "local":  # one machine that stands for all nodes
        return
    by_machine: dict[str, list[NodeNeeds]] = defaultdict(list)
    for needs, facts in survey.answered:
        by_machine[facts.machine].append(needs)
    for group in by_machine.values():
        if len(group) > 1:
            yield from _shared(group)


def _shared(group: Sequence[NodeNeeds]) -> Iterator[Finding]:
    collisions = tuple(dict.fromkeys((*_devices(group), *_ports(group))))
    has_own_addresses = _have_own_addresses(group)
    names = fold(each.name for each in group)
    for each in group:
        if collisions:
            text = f"{names} are one machine, where their processes collide"
            yield MACHINES.error(each.name, "PD436", text, notes=collisions, help=_HELP)
        elif has_own_addresses:
            yield MACHINES.ok(each.name, "one machine, each with an address of its own")
        else:
            yield MACHINES.warning(
                each.name,
                "PD436",
                f"{names} are one machine",
                notes=("its memory and processors are counted more than once",),
                help=_HELP,
            )


def _devices(group: Sequence[NodeNeeds]) -> Iterator[str]:
    users: dict[int, list[str]] = defaultdict(list)
    for needs in group:
        for index in needs.device_indices:
            users[index].append(needs.name)
    shared: dict[str, list[str]] = defaultdict(list)
    for index, names in users.items():
        if len(names) > 1:
            shared[fold(names)].append(str(index))
    for names, indices in shared.items():
        yield f"{names} use the same devices, {', '.join(indices)}"


def _ports(group: Sequence[NodeNeeds]) -> Iterator[str]:
    listeners: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for needs in group:
        for port in needs.ports:
            listeners[port.claim.port].append((port.process.listen, port.process.id))
    for port, found in listeners.items():
        ids = [
            process_id
            for host, process_id in found
            if any(other != process_id and _meet(host, elsewhere) for elsewhere, other in found)
        ]
        if ids:
            yield f"{fold(ids)} would listen on the same port {port}"


def _have_own_addresses(group: Sequence[NodeNeeds]) -> bool:
    hosts = [host for each in group for host in {port.process.listen for port in each.ports}]
    return len(set(hosts)) == len(hosts) and all(map(_is_one_address, hosts))


def _meet(one: str, other: str) -> bool:
    """Whether a port at one may be the port at the other."""
    return one == other or not (_is_one_address(one) and _is_one_address(other))


def _is_one_address(host: str) -> bool:
    """Where a node has a name only, its processes listen on all addresses."""
    try:
        return not ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
