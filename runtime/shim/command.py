"""The verb `run`: one command in the foreground, its lines as JSON, its end as the last line.

`{"line", "is_error"}` for each line, then `{"exit_code", "signal", "error"}`. If the reader goes away, or on
TERM, the command's whole group is killed: nobody would learn how it ended.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from . import jsontext
from .record import RequestError

CHUNK_BYTES = 64 << 10
MAX_LINE_BYTES = 64 << 10


def run(request: dict) -> None:
    argv, env = request.get("argv"), request.get("env") or {}
    if not isinstance(argv, list) or not argv or not isinstance(env, dict):
        raise RequestError("`argv` is not a list of words, or `env` not a map")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environ.update(env)
    try:
        child = subprocess.Popen(
            argv,
            env=environ,
            cwd=request.get("cwd"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        _print({"exit_code": None, "signal": None, "error": "cannot execute `%s`: %s" % (argv[0], error)})
        return
    signal.signal(signal.SIGTERM, _leave)
    try:
        _relay(child)
    except BrokenPipeError:
        os.killpg(child.pid, signal.SIGKILL)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains while it ends
    code = child.wait()
    _print({"exit_code": code if code >= 0 else None, "signal": -code if code < 0 else None, "error": None})


def _relay(child: subprocess.Popen) -> None:
    """Copy lines until both pipes end; `BrokenPipeError` when our reader is gone, also in a quiet time."""
    pipes = [pipe for pipe in (child.stdout, child.stderr) if pipe]
    streams = {pipe.fileno(): (pipe is child.stderr, [b""]) for pipe in pipes}
    poll = select.poll()
    poll.register(1, 0)
    for descriptor in streams:
        poll.register(descriptor, select.POLLIN)
    while streams:
        for descriptor, _ in poll.poll():
            if descriptor not in streams:
                raise BrokenPipeError
            is_error, rest = streams[descriptor]
            chunk = os.read(descriptor, CHUNK_BYTES)
            *lines, rest[0] = (rest[0] + chunk).split(b"\n")
            if rest[0] and (not chunk or len(rest[0]) > MAX_LINE_BYTES):
                lines.append(rest[0])
                rest[0] = b""
            for line in lines:
                _print({"line": line.rstrip(b"\r").decode("utf-8", "replace"), "is_error": is_error})
            if not chunk:
                poll.unregister(descriptor)
                del streams[descriptor]


def _leave(number: int, frame: object) -> None:
    raise BrokenPipeError


def _print(entry: dict) -> None:
    sys.stdout.write(jsontext.dumps(entry) + "\n")
    sys.stdout.flush()
