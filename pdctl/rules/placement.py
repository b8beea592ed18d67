"""Names and addresses of nodes, as far as the document alone tells; `plan/placement.py` sees the nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, line_of
from pdctl.rules.network import canonical, is_loopback
from pdctl.topology.model import AUTO, Host, Role, Ssh, Topology
from pdctl.topology.nearest import suggest
from pdctl.topology.source import DocumentPath


def _hosts(topology: Topology) -> tuple[Host, ...]:
    """The hosts that the document lists; none where it only counts them."""
    nodes = topology.cluster.nodes
    return () if isinstance(nodes, int) else nodes


def _named_nodes(topology: Topology) -> Iterator[tuple[DocumentPath, str]]:
    for role in topology.roles:
        for index, name in enumerate(role.on):
            yield (role.name, "on", index), name
    if topology.router.on is not None:
        yield ("router", "on"), topology.router.on


def _named_nodes_exist(topology: Topology) -> Iterable[Diagnostic]:
    known = {host.name: None for host in _hosts(topology)}
    if not known:
        return  # the executor names the nodes; the compiler checks against its inventory
    for path, name in _named_nodes(topology):
        if name not in known:
            yield at_value(
                topology,
                path,
                "PD403",
                f"`{name}` is no node of the cluster",
                help=suggest(name, known),
            )


def _names_stand_once(topology: Topology) -> Iterable[Diagnostic]:
    listed: list[tuple[DocumentPath, str]] = [
        (("cluster", "nodes", index, "name"), host.name) for index, host in enumerate(_hosts(topology))
    ]
    yield from _twice(topology, listed, "PD406", "node")
    for role in topology.roles:
        named: list[tuple[DocumentPath, str]] = [
            ((role.name, "on", index), name) for index, name in enumerate(role.on)
        ]
        yield from _twice(topology, named, "PD406", "node")


def _addresses_stand_once(topology: Topology) -> Iterable[Diagnostic]:
    """A host of `ssh` without an address is reached by its name, which may be the address of another."""
    listed: list[tuple[DocumentPath, str]] = []
    by_name: set[str] = set()
    for index, host in enumerate(_hosts(topology)):
        path: DocumentPath = ("cluster", "nodes", index)
        if host.address not in (None, AUTO):
            listed.append(((*path, "address"), host.address))
        elif host.address is None and topology.cluster.executor == "ssh" and host.name not in by_name:
            by_name.add(host.name)  # the same name once more is PD406
            listed.append(((*path, "name"), host.name))
    yield from _twice(topology, listed, "PD407", "address", canonical)


def _logins_stand_once(topology: Topology) -> Iterable[Diagnostic]:
    """Accounts tell machines apart where a gateway stands for all of them."""
    if topology.cluster.executor != "ssh":
        return
    ssh = topology.cluster.ssh or Ssh()
    first: dict[tuple[str, int | None, str | None], tuple[DocumentPath, str]] = {}
    for index, host in enumerate(_hosts(topology)):
        if host.ssh.host is None and host.address not in (None, AUTO):
            continue  # equal addresses are PD407
        target = host.ssh.host or host.name
        login = (canonical(target), host.ssh.port or ssh.port, host.ssh.user or ssh.user)
        path: DocumentPath = ("cluster", "nodes", index)
        place: DocumentPath = (*path, "name") if host.ssh.host is None else (*path, "ssh", "host")
        other, name = first.setdefault(login, (place, host.name))
        if name != host.name:  # the same name is PD406
            yield at_value(
                topology,
                place,
                "PD435",
                f"`{host.name}` and `{name}` are logged in to at one place, `{target}`",
                notes=(f"first at {line_of(topology, other)}", "so they are one machine under two names"),
                help="correct `ssh.host`, or list the machine once with all its devices",
            )


def _device_orders_fit(topology: Topology) -> Iterable[Diagnostic]:
    """Indices of devices that no node has would only be found missing, and one listed twice counts once."""
    for role in topology.roles:
        largest, seen = _most_devices(topology, role), set[int]()
        for index, device in enumerate(role.device_order):
            is_there, is_first = largest == 0 or device < largest, device not in seen
            seen.add(device)
            if is_there and is_first:
                continue
            yield at_value(
                topology,
                (role.name, "device_order", index),
                "PD433",
                f"device {device} is listed twice"
                if is_there
                else f"there is no device {device}: nodes have {largest}, counted from 0",
                help="remove it",
            )


def _most_devices(topology: Topology, role: Role) -> int:
    """Of the nodes that the role may use."""
    hosts = [host for host in _hosts(topology) if not role.on or host.name in role.on]
    stated = [topology.cluster.devices_per_node if host.devices is None else host.devices for host in hosts]
    return max(stated, default=topology.cluster.devices_per_node)


def _twice(
    topology: Topology,
    listed: Iterable[tuple[DocumentPath, str]],
    code: str,
    noun: str,
    form: Callable[[str], str] = str,
) -> Iterator[Diagnostic]:
    """`form` gives equal texts for what means the same."""
    first: dict[str, DocumentPath] = {}
    for path, name in listed:
        if form(name) not in first:
            first[form(name)] = path
            continue
        yield at_value(
            topology,
            path,
            code,
            f"the {noun} `{name}` is listed twice",
            notes=(f"first at {line_of(topology, first[form(name)])}",),
            help="remove one of them",
        )


def _local_means_this_machine(topology: Topology) -> Iterable[Diagnostic]:
    if topology.cluster.executor != "local" or topology.is_rehearsal:
        return
    nodes = topology.cluster.nodes
    num_nodes = nodes if isinstance(nodes, int) else len(nodes)
    if num_nodes > 1:
        yield at_value(
            topology,
            ("cluster", "nodes"),
            "PD408",
            f"the `local` executor has one node, this machine; found {num_nodes}",
            help="several instances share the machine: set `instances`, and `cluster.nodes: 1`",
        )
    for index, host in enumerate(_hosts(topology)):
        if host.address not in (None, AUTO) and not is_loopback(host.address):
            # Whether it is an address of this machine can't be told from the document.
            yield at_value(
                topology,
                ("cluster", "nodes", index, "address"),
                "PD408",
                f"the `local` executor starts `{host.name}` on this machine, not at `{host.address}`",
                severity=Severity.WARNING,
                notes=(
                    "engines listen on that address, and fail to start where the machine doesn't have it",
                ),
                help="leave `address` out to use the loopback address",
            )


RULES = (
    Rule(code="PD403", check=_named_nodes_exist),
    Rule(code="PD406", check=_names_stand_once),
    Rule(code="PD407", check=_addresses_stand_once),
    Rule(code="PD435", check=_logins_stand_once),
    Rule(code="PD433", check=_device_orders_fit),
    Rule(code="PD408", check=_local_means_this_machine),
)
