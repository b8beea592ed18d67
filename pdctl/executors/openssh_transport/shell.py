"""Commands on one machine, each by an `ssh` of its own over the shared connection."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence

from pdctl.executors.openssh_transport.connection import FAILED, NodeConnection
from pdctl.executors.openssh_transport.exchange import TooMuchError, exchange
from pdctl.executors.openssh_transport.faults import last_line
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

MAX_SESSIONS = 8  # at a time on a connection; sshd allows 10 by default
MAX_OUTPUT_BYTES = 256 << 20
_CHUNK_BYTES = 256 << 10
_AFTER_OUTPUT_S = 1.0

# `ssh` ends with 255 for a lost connection, for a command that a signal ended, and for one that ended with
# 255. So the node tells how the command ended, behind its stderr. `exec` takes a program, never a word of sh.
_TELL_END = r"""e=$1; shift; (exec "$@"); c=$?; printf '\n%s %d\n' "$e" "$c" >&2; exit "$c" """
_FIRST_SIGNAL, _LAST_SIGNAL = 128 + 1, 128 + 64  # as shells count


class OpensshShell:
    """May be used from several threads at a time."""

    def __init__(self, connection: NodeConnection, *, command_timeout_s: float | None = None) -> None:
        self._connection = connection
        self._command_timeout_s = command_timeout_s or 0.0
        self._sessions = threading.BoundedSemaphore(MAX_SESSIONS)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        limit_s = max(timeout_s, self._command_timeout_s)
        marker = new_marker()
        line = remote_command(_telling(argv, marker), marker)
        if not self._sessions.acquire(timeout=limit_s):
            raise too_slow(limit_s)
        try:
            self._connection.open()
            with self._connection.command(line) as child:
                stdout, stderr = _finished(child, stdin, limit_s)
        finally:
            self._sessions.release()
        return self._completed(marker, child.returncode, stdout, stderr)

    def put(self, path: str, content: bytes) -> None:
        argv = put_command(path, len(content), secrets.token_hex(8))
        try:
            done = self.run(argv, stdin=content, timeout_s=PUT_TIMEOUT_S)
        except UnreachableError:  # half a file has a name of its own, and a second attempt does no harm
            done = self.run(argv, stdin=content, timeout_s=PUT_TIMEOUT_S)
        if (fault := put_fault(done)) is not None:
            raise fault

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> OpensshStream:
        marker = new_marker()
        line = remote_command(_telling(argv, marker), marker)
        self._connection.open()
        return OpensshStream(self._connection, line, marker, stdin)

    def close(self) -> None:
        self._connection.close()

    def _completed(self, marker: str, ssh_code: int, stdout: bytes, stderr: bytes) -> Completed:
        own, said = strip_noise(stdout, marker), strip_noise(stderr, marker)
        if own is None:
            raise _never_began(self._connection, ssh_code, stdout, stderr)
        code, words = _end(said or b"", marker)
        if code is None:
            raise cut_off()
        return Completed(code=code, stdout=own, stderr=words)


def _finished(child: subprocess.Popen[bytes], stdin: bytes, limit_s: float) -> tuple[bytes, bytes]:
    deadline = time.monotonic() + limit_s
    try:
        output = exchange(child, stdin, deadline=deadline, max_bytes=MAX_OUTPUT_BYTES)
        child.wait(max(_AFTER_OUTPUT_S, deadline - time.monotonic()))
    except (TimeoutError, subprocess.TimeoutExpired) as error:
        raise too_slow(limit_s) from error
    except TooMuchError as error:
        raise UnreachableError(f"a command gave more than {MAX_OUTPUT_BYTES >> 20} MiB") from error
    finally:
        child.kill()  # its session on the node ends with it; no effect when it has ended
    return output


def _telling(argv: Sequence[str], marker: str) -> list[str]:
    return ["/bin/sh", "-c", _TELL_END, "sh", _end_marker(marker), *argv]


def _end_marker(marker: str) -> str:
    return f"{marker}-end"


def _end(stderr: bytes, marker: str) -> tuple[int | None, bytes]:
    """The command's code, None where it did not come to its end, and what it wrote to its stderr."""
    found = re.search(rb"\n%b (\d+)\n" % _end_marker(marker).encode(), stderr)
    if found is None:
        return None, stderr
    code = int(found[1])
    is_signal = _FIRST_SIGNAL <= code <= _LAST_SIGNAL
    return (128 - code if is_signal else code), stderr[: found.start()] + stderr[found.end() :]


def _never_began(connection: NodeConnection, ssh_code: int, stdout: bytes, stderr: bytes) -> UnreachableError:
    said = stderr.decode("utf-8", "replace")
    if ssh_code == FAILED:
        return connection.fault(said)
    noise = last_line(stdout.decode("utf-8", "replace")) or last_line(said)
    try:
        return no_shell(connection.login().user, noise)
    except UnreachableError as error:
        return error


class OpensshStream:
    """A running command's lines. `close` may come from another thread than the one that reads.

    Closing takes the command's output away; the shim's streaming verbs end when that happens.
    """

    def __init__(self, connection: NodeConnection, line: str, marker: str, stdin: bytes) -> None:
        self._connection = connection
        self._marker = marker
        self._is_closed = False
        self._has_reader = False
        self._stderr = bytearray()
        self._child = connection.command(line)
        assert self._child.stdin is not None
        # When it has ended already, its end, which the reader sees, tells why.
        with contextlib.suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(stdin)

    def __iter__(self) -> Iterator[bytes]:
        """Raises `UnreachableError` when the node is lost, which is not the command's end."""
        self._has_reader = True
        has_begun, noise, marker = False, b"", self._marker.encode()
        for line in self._lines():
            if has_begun:
                yield line
            elif line == marker:
                has_begun = True
            elif line:
                noise = line
        if self._is_closed:
            return
        code = self._child.wait()
        if not has_begun:
            raise _never_began(self._connection, code, noise, bytes(self._stderr))
        ended, words = _end(strip_noise(bytes(self._stderr), self._marker) or b"", self._marker)
        # A stream has no other place for it than ours.
        sys.stderr.buffer.write(words)
        sys.stderr.buffer.flush()
        if ended is None:
            raise cut_off()

    def close(self) -> None:
        self._is_closed = True
        self._child.kill()
        self._child.wait()
        if not self._has_reader:  # a reader closes them by itself, at the end that it now sees
            self._close_pipes()

    def _close_pipes(self) -> None:
        for pipe in (self._child.stdout, self._child.stderr):
            if pipe is not None:
                pipe.close()

    def _lines(self) -> Iterator[bytes]:
        partial = b""
        for chunk in self._chunks():
            *lines, partial = (partial + chunk).split(b"\n")
            yield from lines
        if partial:
            yield partial

    def _chunks(self) -> Iterator[bytes]:
        """stdout as it comes; stderr is kept for the end."""
        stdout, stderr = self._child.stdout, self._child.stderr
        assert stdout is not None
        assert stderr is not None
        try:
            with selectors.DefaultSelector() as waiting:
                waiting.register(stdout, selectors.EVENT_READ)
                waiting.register(stderr, selectors.EVENT_READ)
                # A session that was ended here may keep its stderr open until the command ends by itself.
                while waiting.get_map() and not self._is_closed:
                    for key, _ in waiting.select():
                        chunk = os.read(key.fd, _CHUNK_BYTES)
                        if not chunk:
                            waiting.unregister(key.fileobj)
                        elif key.fileobj is stdout:
                            yield chunk
                        else:
                            self._keep(chunk)
        finally:
            self._close_pipes()

    def _keep(self, chunk: bytes) -> None:
        """The end counts, and the marker at the beginning; a command that never ends may say much between."""
        self._stderr += chunk
        if len(self._stderr) > MAX_OUTPUT_BYTES:
            raise UnreachableError(f"a command gave more than {MAX_OUTPUT_BYTES >> 20} MiB")
