"""Feed a child process and read it, within a time and a number of bytes."""

from __future__ import annotations

import os
import selectors
import subprocess
import time
from typing import IO

_CHUNK_BYTES = 256 << 10
_PIPE_BYTES = 64 << 10


class TooMuchError(Exception):
    """The child gave more than there is room for."""


def exchange(
    child: subprocess.Popen[bytes], stdin: bytes, *, deadline: float, max_bytes: int
) -> tuple[bytes, bytes]:
    """stdout and stderr to their ends, `stdin` written beside them. `deadline` is of the monotonic clock.

    Raises `TimeoutError` and `TooMuchError`; the child lives on then.
    """
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    outputs = {child.stdout: bytearray(), child.stderr: bytearray()}
    left = memoryview(stdin)
    with selectors.DefaultSelector() as waiting:
        for output in outputs:
            waiting.register(output, selectors.EVENT_READ)
        os.set_blocking(child.stdin.fileno(), False)
        waiting.register(child.stdin, selectors.EVENT_WRITE)
        while waiting.get_map():
            ready = waiting.select(max(0.0, deadline - time.monotonic()))
            if not ready:
                raise TimeoutError
            for key, _ in ready:
                if key.fileobj is child.stdin:
                    left = _feed(child.stdin, left)
                    is_done = not left
                else:
                    output = child.stdout if key.fileobj is child.stdout else child.stderr
                    chunk = os.read(output.fileno(), _CHUNK_BYTES)
                    outputs[output] += chunk
                    is_done = not chunk
                if is_done:
                    waiting.unregister(key.fileobj)
                    if key.fileobj is child.stdin:
                        child.stdin.close()
            if sum(map(len, outputs.values())) > max_bytes:
                raise TooMuchError
    return bytes(outputs[child.stdout]), bytes(outputs[child.stderr])


def _feed(pipe: IO[bytes], left: memoryview) -> memoryview:
    """What is left to write; nothing when the child has stopped reading."""
    try:
        return left[os.write(pipe.fileno(), left[:_PIPE_BYTES]) :] if left else left
    except BrokenPipeError:
        return left[:0]
