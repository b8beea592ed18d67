"""TCP from the C half of `socket`, for the reason that `signals` tells."""

from __future__ import annotations

import _socket as socket

__all__ = ("Socket", "accept", "connect", "resolve", "socket")


class Socket(socket.socket):
    """Leaves with its `with` block."""

    def __enter__(self) -> Socket:
        return self

    def __exit__(self, *_fault: object) -> None:
        self.close()


def resolve(host: str, port: int, kind: int) -> list:
    """As `socket.getaddrinfo`."""
    # Text goes through an encoding for international names, which loads `re` even where all is ASCII.
    name = host.encode() if host.isascii() else host
    return socket.getaddrinfo(name, port, 0, kind)


def connect(host: str, port: int, timeout_s: float) -> Socket:
    """To the first address of a name that takes the connection; each may take `timeout_s`."""
    last: OSError = OSError("`%s` has no address" % host)
    for family, kind, protocol, _, address in resolve(host, port, socket.SOCK_STREAM):
        made = Socket(family, kind, protocol)
        try:
            made.settimeout(timeout_s)
            made.connect(address)
        except OSError as error:
            made.close()
            last = error
            continue
        return made
    raise last


def accept(listener: Socket) -> Socket:
    descriptor, _address = listener._accept()  # pyright: ignore[reportAttributeAccessIssue] - typeshed lacks it
    return Socket(fileno=descriptor)
