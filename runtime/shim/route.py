"""The verb `route`: which address and interface of this node packets to other machines leave from."""

from __future__ import annotations

import array
import fcntl
import os
import struct

from .record import RequestError
from .sockets import Socket, resolve, socket

MAX_TARGETS = 4096
ANY_PORT = 9  # nothing is sent: connecting a UDP socket only looks up the route
SIOCGIFCONF = 0x8912
IFREQ_BYTES = 40
NAME_BYTES = 16
MAX_ADDRESSES = 1024


def route(targets: object) -> dict:
    """`{"login", "routes"}`: the address that the login came in by, null without one, and one
    `{"address", "interface", "error"}` per target.
    """
    if not isinstance(targets, list) or len(targets) > MAX_TARGETS:
        raise RequestError("`targets` is not a list of at most %d" % MAX_TARGETS)
    interfaces = _interfaces()
    login = _login_address()
    return {
        "login": None if login is None else {"address": login, "interface": interfaces.get(login)},
        "routes": [_route_to(target, interfaces) for target in targets],
    }


def _login_address() -> str | None:
    """sshd's words: the client's address and port, then ours."""
    words = os.environ.get("SSH_CONNECTION", "").split()
    return words[2].partition("%")[0] if len(words) == 4 else None


def _route_to(target: object, interfaces: dict[str, str]) -> dict:
    try:
        family, kind, _, _, address = resolve(str(target), ANY_PORT, socket.SOCK_DGRAM)[0]
        with Socket(family, kind) as probe:
            probe.connect(address)
            source = probe.getsockname()[0].partition("%")[0]
    except socket.gaierror as error:
        return _answer(error="`%s` has no address there: %s" % (target, error.strerror))
    except OSError as error:
        return _answer(error="no way to `%s`: %s" % (target, error.strerror))
    return _answer(source, interfaces.get(source))


def _answer(address: str | None = None, interface: str | None = None, error: str | None = None) -> dict:
    return {"address": address, "interface": interface, "error": error}


def _interfaces() -> dict[str, str]:
    """The interface of each of our addresses."""
    found = dict(_v6_interfaces())
    buffer = array.array("B", bytes(IFREQ_BYTES * MAX_ADDRESSES))
    pointer, _ = buffer.buffer_info()
    with Socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        answer = fcntl.ioctl(any_socket.fileno(), SIOCGIFCONF, struct.pack("iL", len(buffer), pointer))
    num_bytes = struct.unpack("iL", answer)[0]
    for start in range(0, num_bytes, IFREQ_BYTES):
        entry = buffer[start : start + IFREQ_BYTES].tobytes()
        name = entry[:NAME_BYTES].split(b"\0", 1)[0].decode("utf-8", "replace")
        # A label such as `eth0:1` is an address's name, the interface is the part before it.
        found[socket.inet_ntoa(entry[NAME_BYTES + 4 : NAME_BYTES + 8])] = name.partition(":")[0]
    return found


def _v6_interfaces() -> list[tuple[str, str]]:
    try:
        with open("/proc/net/if_inet6") as file:
            rows = [line.split() for line in file]
    except OSError:
        return []
    return [(socket.inet_ntop(socket.AF_INET6, bytes.fromhex(row[0])), row[5]) for row in rows]
