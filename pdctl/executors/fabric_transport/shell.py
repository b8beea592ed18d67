"""Commands on one machine, each in a channel of its kept connection."""

from __future__ import annotations

import contextlib
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from paramiko import Channel, Message, SSHException
from paramiko.common import cMSG_CHANNEL_REQUEST

from pdctl.executors.fabric_transport.connection import NodeConnection
from pdctl.executors.remote_command import (
    PUT_TIMEOUT_S,
    new_marker,
    put_command,
    put_fault,
    remote_command,
    strip_noise,
)
from pdctl.executors.shell import Completed, UnreachableError
from pdctl.executors.ssh_faults import cut_off, no_shell, too_slow

MAX_CHANNELS = 8  # at a time on a connection; sshd allows 10 by default
MAX_OUTPUT_BYTES = 256 << 20
_CHUNK_BYTES = 256 << 10
# As a rule this much fits a channel's first window: writing it can't wait for us to read.
_INLINE_STDIN_BYTES = 64 << 10
_STDERR_EVERY_S = 0.1
_IDLE_CHECK_S = 30.0  # of silence, before a stream asks whether its server still lives


class FabricShell:
    """`connect` is called at the first use. May be used from several threads at a time."""

    def __init__(
        self, connect: Callable[[], NodeConnection], *, command_timeout_s: float | None = None
    ) -> None:
        self._connect = connect
        self._command_timeout_s = command_timeout_s or 0.0
        self._connecting = threading.Lock()
        self._connection: NodeConnection | None = None
        self._channels = threading.BoundedSemaphore(MAX_CHANNELS)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        limit_s = max(timeout_s, self._command_timeout_s)
        connection, marker = self._node(), new_marker()
        line = remote_command(argv, marker)
        if not self._channels.acquire(timeout=limit_s):
            raise too_slow(limit_s)
        try:
            channel = connection.open_channel()
            with contextlib.closing(channel):
                return _finished(channel, line, marker, stdin, limit_s, connection.user)
        finally:
            self._channels.release()

    def put(self, path: str, content: bytes) -> None:
        argv = put_command(path, len(content), secrets.token_hex(8))
        try:
            done = self.run(argv, stdin=content, timeout_s=PUT_TIMEOUT_S)
        except UnreachableError:  # half a file has a name of its own, and a second attempt does no harm
            done = self.run(argv, stdin=content, timeout_s=PUT_TIMEOUT_S)
        if (fault := put_fault(done)) is not None:
            raise fault

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> FabricStream:
        connection, marker = self._node(), new_marker()
        return FabricStream(connection, remote_command(argv, marker), marker, stdin)

    def close(self) -> None:
        with self._connecting:
            if self._connection is not None:
                self._connection.close()

    def _node(self) -> NodeConnection:
        with self._connecting:
            if self._connection is None:
                self._connection = self._connect()
            return self._connection


def _finished(channel: Channel, line: str, marker: str, stdin: bytes, limit_s: float, user: str) -> Completed:
    """One command from its request to its end."""
    deadline = time.monotonic() + limit_s
    try:
        _begin(channel, line, stdin)
        stdout, stderr = _read_all(channel, deadline)
        channel.status_event.wait(max(0.0, deadline - time.monotonic()))
        code = channel.exit_status
    except TimeoutError as error:
        raise too_slow(limit_s) from error
    except (SSHException, OSError, EOFError) as error:
        raise cut_off() from error
    if time.monotonic() >= deadline:
        raise too_slow(limit_s)
    transport = channel.get_transport()
    if code == -1 and not transport.is_active():
        raise cut_off()
    own = strip_noise(stdout, marker)
    if own is None:
        raise no_shell(user, _last_line(stdout) or _last_line(stderr))
    return Completed(code=code, stdout=own, stderr=strip_noise(stderr, marker) or b"")


def _begin(channel: Channel, line: str, stdin: bytes) -> None:
    channel.settimeout(
        _STDERR_EVERY_S
    )  # of every wait from here on: nothing waits longer without a look around
    _request(channel, line)
    if len(stdin) <= min(_INLINE_STDIN_BYTES, channel.out_window_size):
        _feed(channel, stdin)
    else:
        threading.Thread(target=_feed, args=(channel, stdin), daemon=True).start()


def _request(channel: Channel, line: str) -> None:
    """Ask for the command as `exec_command` does, but without a wait for the server's word: so its input goes
    the same way at once, and a server that hangs holds nobody. A server that refuses closes the channel.
    """
    message = Message()
    message.add_byte(cMSG_CHANNEL_REQUEST)
    message.add_int(channel.remote_chanid)
    message.add_string("exec")
    message.add_boolean(True)
    message.add_string(line)
    transport = channel.get_transport()
    transport._send_user_message(message)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]


def _feed(channel: Channel, stdin: bytes) -> None:
    num_sent = 0
    # A command may end without reading its input.
    with contextlib.suppress(SSHException, OSError, EOFError):
        while num_sent < len(stdin):
            try:
                taken = channel.send(stdin[num_sent : num_sent + _CHUNK_BYTES])
            except TimeoutError:  # the channel's limit is there for the side that reads
                continue
            if taken == 0:
                return
            num_sent += taken
        channel.shutdown_write()


def _read_all(channel: Channel, deadline: float) -> tuple[bytes, bytes]:
    """stdout and stderr to their ends. They share a window, so that neither may be left unread."""
    stdout, stderr = bytearray(), bytearray()
    while True:
        if time.monotonic() >= deadline:
            raise TimeoutError
        try:
            chunk = channel.recv(_CHUNK_BYTES)
        except TimeoutError:
            _drain_stderr(channel, stderr)
            continue
        if not chunk:
            break
        stdout += chunk
        if len(stdout) + len(stderr) > MAX_OUTPUT_BYTES:
            raise UnreachableError(f"a command gave more than {MAX_OUTPUT_BYTES >> 20} MiB")
        _drain_stderr(channel, stderr)
    channel.settimeout(max(0.0, deadline - time.monotonic()))
    while chunk := channel.recv_stderr(_CHUNK_BYTES):
        stderr += chunk
    return bytes(stdout), bytes(stderr)


def _drain_stderr(channel: Channel, into: bytearray) -> None:
    while channel.recv_stderr_ready():
        into += channel.recv_stderr(_CHUNK_BYTES)


def _last_line(output: bytes) -> str:
    lines = output.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""


class FabricStream:
    """A running command's lines. `close` may come from another thread than the one that reads.

    Closing takes the command's output away; the shim's streaming verbs end when that happens.
    """

    def __init__(self, connection: NodeConnection, line: str, marker: str, stdin: bytes) -> None:
        self._connection = connection
        self._marker = marker.encode()
        self._is_closed = threading.Event()
        self._channel = connection.open_channel()
        try:
            _begin(self._channel, line, stdin)
        except (SSHException, OSError, EOFError) as error:
            self._channel.close()
            raise cut_off() from error

    def __iter__(self) -> Iterator[bytes]:
        """Raises `UnreachableError` when the node is lost, which is not the command's end."""
        has_begun = False
        noise = b""
        for line in self._lines():
            if has_begun:
                yield line
            elif line == self._marker:
                has_begun = True
            elif line:
                noise = line
        if self._is_closed.is_set():
            return
        self._channel.status_event.wait(_IDLE_CHECK_S)
        if self._channel.exit_status == -1 and not self._channel.get_transport().is_active():
            raise cut_off()
        if not has_begun:
            raise no_shell(self._connection.user, noise.decode("utf-8", "replace"))
        self.close()

    def close(self) -> None:
        self._is_closed.set()
        self._channel.close()

    def _lines(self) -> Iterator[bytes]:
        partial = b""
        for chunk in self._chunks():
            *lines, partial = (partial + chunk).split(b"\n")
            yield from lines
        if partial:
            yield partial

    def _chunks(self) -> Iterator[bytes]:
        last_heard = time.monotonic()
        while True:
            try:
                chunk = self._channel.recv(_CHUNK_BYTES)
            except TimeoutError:
                chunk = None
            self._pass_on_stderr()
            now = time.monotonic()
            if chunk == b"":
                return
            if chunk:
                last_heard = now
                yield chunk
            elif now - last_heard > _IDLE_CHECK_S:
                if not self._connection.is_answering():
                    raise cut_off()
                last_heard = now

    def _pass_on_stderr(self) -> None:
        """A stream has no other place for it than ours."""
        said = bytearray()
        _drain_stderr(self._channel, said)
        if said:
            sys.stderr.buffer.write(strip_noise(bytes(said), self._marker.decode()) or b"")
            sys.stderr.buffer.flush()
