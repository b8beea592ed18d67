"""Take the port before anything slow happens."""

from __future__ import annotations

import errno
import socket

_BACKLOG = 2048


class ListenError(Exception):
    """The address can't be listened on; the message says why."""


def listen_on(host: str, port: int) -> socket.socket:
    """A listening socket. Port 0 lets the system choose."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as fault:
        raise ListenError(f"host `{host}` can't be resolved: {fault.strerror}") from fault
    listener = socket.socket(family, kind, protocol)
    # Allows the port of a server that has just ended, not one that somebody listens on.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as fault:
        listener.close()
        if fault.errno == errno.EADDRINUSE:
            raise ListenError(f"port {host}:{port} is taken") from fault
        raise ListenError(f"can't listen on {host}:{port}: {fault.strerror}") from fault
    return listener
