"""Nodes meet over TCP: one listens for a moment, its peers dial, and both see whether packets get through.

First all nodes listen (a part of `survey`), then all dial (`runtime/shim/dial.py`). A door greets whoever
comes with its token, then sends enough for full packets: a path that loses those (jumbo frames on one side
only) lets every connection open and every large message hang. The attendant of the doors leaves when all who
were expected have come, or its time is up; `hang_up` sends it away earlier.
"""

from __future__ import annotations

import errno
import os
import select
import time

from .proc import Process, Table, is_same, read_process, send_signal
from .record import RequestError, checked_nodes
from .signals import signal
from .sockets import Socket, accept, resolve, socket

MAX_TARGETS = 4096
MAX_LIFETIME_S = 60.0
SEND_TIMEOUT_S = 1.0
GIVE_UP_MS = 5000
CHECK_EVERY_S = 1.0  # whether anybody is left who sends visitors
SHELLS = ("sh", "ash", "bash", "dash", "zsh", "ksh", "fish", "csh", "tcsh", "busybox")
PADDING = b"." * 20_000  # full packets, also of 9,000 bytes, and within what a kernel takes at once


class Door:
    """One listening socket, or the `problem` why there is none. `num_visits` peers are expected."""

    def __init__(self, request: object) -> None:
        if not isinstance(request, dict) or not isinstance(request.get("token"), str):
            raise RequestError("a door has no `token`")
        self.greeting = greeting(request["token"])
        self.num_visits = int(request.get("num_visits") or 0)
        self.lifetime_s = min(float(request.get("lifetime_s") or 0.0), MAX_LIFETIME_S)
        self.listener: Socket | None = None
        self.port: int | None = None
        self.problem: str | None = None
        try:
            self.listener = _listen(request.get("host") or "0.0.0.0", int(request.get("port") or 0))
            self.port = self.listener.getsockname()[1]
        except OSError as error:
            # Whoever has a taken port can be dialled, but greets nobody.
            self.problem = "taken" if error.errno == errno.EADDRINUSE else error.strerror or str(error)


def greeting(token: str) -> bytes:
    return b"pdctl meets %s\n" % token.encode()


def open_doors(requests: object) -> list[Door]:
    """A door for each `{"host", "port", "token", ...}`. Port 0 lets the kernel choose."""
    if not isinstance(requests, list) or len(requests) > MAX_TARGETS:
        raise RequestError("`listen` is not a list of at most %d" % MAX_TARGETS)
    return [Door(request) for request in requests]


def _listen(host: str, port: int) -> Socket:
    family, _, _, _, address = resolve(host, port, socket.SOCK_STREAM)[0]
    listener = Socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        listener.setblocking(False)  # a visitor may be gone before we come to the door
    except OSError:
        listener.close()
        raise
    return listener


def attend(doors: list[Door]) -> dict | None:
    """Leave a process behind that serves the doors; named by its pid and start, as `hang_up` wants it."""
    if not doors:
        return None
    sender = _sender()
    pid = os.fork()
    if pid == 0:
        try:
            _serve_alone(doors, sender)
        finally:
            os._exit(0)
    for listener in _listeners(doors).values():
        listener.close()  # ours; the attendant has its own
    process = read_process(pid)
    return {"pid": pid, "start_ticks": process.start_ticks if process else 0}


def hang_up(nodes: object) -> list[dict]:
    """Send each `{"pid", "start_ticks"}` away, so that its ports are free again at once."""
    table = Table()
    gone = []
    for attendant in checked_nodes(nodes):
        process = table.find(attendant.get("pid"), attendant.get("start_ticks"))
        gone.append({"was_there": process is not None and send_signal(process, signal.SIGKILL)})
    return gone


def _sender() -> Process | None:
    """Whoever has the connection that asked us: sshd's process of it, on this machine pdctl itself.

    None where that can't be told: a login shell, or a server's process of one command, ends with our call.
    """
    has_login = "SSH_CONNECTION" in os.environ
    process = read_process(os.getppid())
    while process is not None and process.pid > 1:
        if process.command.startswith("sshd"):
            return process if has_login else None
        if not has_login:
            return None if process.command in SHELLS else process
        process = read_process(process.parent)
    return None


def _serve_alone(doors: list[Door], sender: Process | None) -> None:
    """In the child: hold none of the caller's files open, or its connection would wait for us.

    Without its sender, who was killed perhaps, nobody is to come.
    """
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nothing, descriptor)
    poll = select.poll()
    listeners = _listeners(doors)
    greetings = {listener.fileno(): door.greeting for door, listener in listeners.items()}
    by_descriptor = {listener.fileno(): listener for listener in listeners.values()}
    for descriptor in by_descriptor:
        poll.register(descriptor, select.POLLIN)
    num_awaited = sum(door.num_visits for door in doors)
    deadline = time.monotonic() + max(door.lifetime_s for door in doors)
    while num_awaited > 0 and time.monotonic() < deadline and (sender is None or is_same(sender)):
        for descriptor, _ in poll.poll(1000 * min(CHECK_EVERY_S, max(0.0, deadline - time.monotonic()))):
            num_awaited -= _greet(by_descriptor[descriptor], greetings[descriptor])


def _listeners(doors: list[Door]) -> dict[Door, Socket]:
    return {door: door.listener for door in doors if door.listener is not None}


def _greet(listener: Socket, words: bytes) -> int:
    """The greeting in a small packet of its own, the rest in full ones. One visit, whatever comes of it."""
    try:
        visitor = accept(listener)
    except OSError:
        return 0
    with visitor:
        visitor.settimeout(SEND_TIMEOUT_S)
        try:
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Where full packets are lost, the kernel would go on for minutes after we have left.
            visitor.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GIVE_UP_MS)
            visitor.sendall(words)
            visitor.sendall(PADDING)  # the kernel goes on sending when we have closed
        except OSError:
            pass
    return 1
