"""A step that runs commands on one node for as long as it is wanted.

A step for each command would not do: who waits for an engine looks every second, each step costs Slurm a
record for good, and a job may have 40000 of them (`MaxStepCount`). And a step that runs needs the controller
for nothing: while it is away, nodes are still seen.
"""

from __future__ import annotations

import base64
import json
import os
import queue
import subprocess
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from pdctl.executors.shell import Completed, UnreachableError
from pdctl.executors.slurm_job.srun import StepPlace, no_srun, step_argv, step_environ, step_fault, too_slow
from pdctl.fields import FieldError, Fields, parse_fields

FAR_END = Path(__file__).with_name("far_end.py")
MAX_LINE_BYTES = 256 << 20
MAX_SAID_BYTES = 64 << 10
AFTER_LIMIT_S = 5.0  # the node itself says that a command took too long, unless it is lost
END_S = 2.0

_Answer = Fields | UnreachableError


class Session:
    """May be used from several threads at a time. Once it has ended, another one must take its place."""

    def __init__(self, place: StepPlace, *, python: str, connect_timeout_s: float) -> None:
        """Returns when the node answers. `UnreachableError`, or `JobGoneError`, where it doesn't."""
        self._job_id = place.job_id
        self._token = f"pdctl-{uuid.uuid4().hex}:"
        far_end = FAR_END.read_text(encoding="utf-8")
        argv = step_argv(place, "pdctl", [python, "-I", "-S", "-c", far_end, self._token])
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the step
        try:
            self._child = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=step_environ(place.environ),
                start_new_session=True,  # a Ctrl-C is meant for pdctl
            )
        except FileNotFoundError as error:
            raise no_srun() from error
        self._guard = threading.Lock()
        self._waiting: dict[int, queue.SimpleQueue[_Answer]] = {}
        self._last_id = 0
        self._is_over = self._has_begun = False
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._begun: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        self._in_thread(self._write)
        self._in_thread(self._read)
        self._await_begin(connect_timeout_s)

    @property
    def is_over(self) -> bool:
        return self._is_over

    def run(self, argv: Sequence[str], *, stdin: bytes, timeout_s: float) -> Completed:
        number, answers = self._expect()
        request = {
            "id": number,
            "argv": list(argv),
            "stdin": base64.b64encode(stdin).decode(),
            "timeout_s": timeout_s,
        }
        self._outgoing.put(json.dumps(request).encode() + b"\n")
        try:
            answer = answers.get(timeout=timeout_s + AFTER_LIMIT_S)
        except queue.Empty as error:
            self.close()
            raise UnreachableError(f"no answer within {timeout_s:g} s") from error
        finally:
            with self._guard:
                self._waiting.pop(number, None)
        return _completed(answer)

    def close(self) -> None:
        """End the step. Commands that still run there are ended with it."""
        self._outgoing.put(None)
        try:
            self._child.wait(END_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()

    def _in_thread(self, work: Callable[[], None]) -> None:
        threading.Thread(target=work, name=f"step-{self._job_id}", daemon=True).start()

    def _await_begin(self, limit_s: float) -> None:
        try:
            found = self._begun.get(timeout=limit_s)
        except queue.Empty as error:
            self._child.kill()
            raise too_slow(self._job_id, limit_s, self._words()) from error
        if isinstance(found, UnreachableError):
            raise found

    def _expect(self) -> tuple[int, queue.SimpleQueue[_Answer]]:
        answers: queue.SimpleQueue[_Answer] = queue.SimpleQueue()
        with self._guard:
            if self._is_over:
                raise self._fault()
            self._last_id += 1
            self._waiting[self._last_id] = answers
            return self._last_id, answers

    def _write(self) -> None:
        """One thread, so that a node which reads no more holds up nobody but those who wait for it."""
        pipe = self._child.stdin
        assert pipe is not None
        try:
            while (line := self._outgoing.get()) is not None:
                pipe.write(line)
                pipe.flush()
            pipe.close()
        except (BrokenPipeError, OSError):  # the end, which the reader sees, tells why
            return

    def _read(self) -> None:
        output = self._child.stdout
        assert output is not None
        token = self._token.encode()
        for line in _lines(output):
            if line.startswith(token):
                self._take(line[len(token) :])
        output.close()
        self._child.kill()  # a line beyond all bounds ends it, too
        self._child.wait()
        with self._guard:
            self._is_over = True
            waiting = tuple(self._waiting.values())
        for answers in (self._begun, *waiting):
            answers.put(self._fault())

    def _take(self, line: bytes) -> None:
        try:
            answer = parse_fields("an answer of a step", line)
            number = answer.optional_integer("id")
        except FieldError:
            return
        if number is None:
            self._has_begun = True
            self._begun.put(answer)
            return
        with self._guard:
            answers = self._waiting.get(number)
        if answers is not None:
            answers.put(answer)

    def _fault(self) -> UnreachableError:
        return step_fault(self._words(), job_id=self._job_id, has_begun=self._has_begun)

    def _words(self) -> str:
        """`pread`: the place in the file is also that of `srun`, which goes on writing."""
        return os.pread(self._said.fileno(), MAX_SAID_BYTES, 0).decode("utf-8", "replace")


def _lines(output: IO[bytes]) -> Iterator[bytes]:
    """Until the end, or a line that is longer than any answer."""
    while (line := output.readline(MAX_LINE_BYTES)).endswith(b"\n"):
        yield line


def _completed(answer: _Answer) -> Completed:
    if isinstance(answer, UnreachableError):
        raise answer
    try:
        if (lost := answer.optional_text("lost")) is not None:
            raise UnreachableError(lost)
        return Completed(
            code=answer.integer("code"),
            stdout=base64.b64decode(answer.text("stdout")),
            stderr=base64.b64decode(answer.text("stderr")),
        )
    except ValueError as error:  # `FieldError`, or no base64
        raise UnreachableError(f"an answer of its step is not its own: {error}") from error
