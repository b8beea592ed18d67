"""Listening sockets for the engine's own ports, of whichever address family the host has."""

from __future__ import annotations

import socket


def open_listener(host: str, port: int, *, backlog: int) -> socket.socket:
    """A listening TCP socket. Port 0 takes a free one. Raises OSError, also for an unknown host."""
    family, _, _, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)  # type: ignore[arg-type]
