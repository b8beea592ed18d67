"""The engine's own sockets: listeners of whichever address family the host has, peers that may vanish."""

from __future__ import annotations

import socket


def open_listener(host: str, port: int, *, backlog: int) -> socket.socket:
    """A listening TCP socket. Port 0 takes a free one. Raises OSError, also for an unknown host."""
    family, _, _, _, address = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    return socket.create_server(address[:2], family=family, backlog=backlog)  # type: ignore[arg-type]


VANISHED_AFTER_S = 30

_IDLE_S, _INTERVAL_S, _NUM_PROBES = 15, 5, 3
assert _IDLE_S + _NUM_PROBES * _INTERVAL_S == VANISHED_AFTER_S


def notice_vanished_peer(sock: socket.socket, *, also_unanswered: bool = False) -> None:
    """Let the socket fail with TimeoutError when the peer's machine doesn't answer for VANISHED_AFTER_S.

    A peer process that stands still is none: its kernel answers. With `also_unanswered` what was sent and
    not acknowledged counts, too. That is only for sides that send little: a peer that stands still would
    vanish with it as soon as its buffers are full.
    """
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _NUM_PROBES)
    if also_unanswered:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * VANISHED_AFTER_S)
