"""Start a process as a step of its own: the step's one task is the shim, which holds the process.

The step's `srun` stays our child, in a session of its own, as long as the process lives: without it, Slurm
ends the step. What it prints lies in the shared folder, a file for each start: nothing else tells why a step
did not start.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from pdctl.executors.slurm_job.srun import StepPlace, no_srun, step_argv, step_environ, step_fault, too_slow
from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.state.files import cannot

SHORTEST_WAIT_S = 0.02
LONGEST_WAIT_S = 0.2
MAX_SAID_BYTES = 64 << 10


class Steps:
    """The steps that this pdctl has started. May be used from several threads at a time."""

    def __init__(self, logs: Path) -> None:
        self._logs = logs
        self._guard = threading.Lock()
        self._clients: list[subprocess.Popen[bytes]] = []

    def start(
        self, place: StepPlace, process_id: str, command: Sequence[str], spec: bytes, *, limit_s: float
    ) -> Fields:
        """The shim's answer, when the program has begun or could not; the step goes on then.

        `UnreachableError` where there is no answer: the step did not start, and nothing of it is left.
        """
        log, descriptor = self._new_log(place.job_id, process_id)
        try:
            client = self._launch(step_argv(place, process_id, command), place, spec, descriptor)
        finally:
            os.close(descriptor)
        deadline, wait_s = time.monotonic() + limit_s, SHORTEST_WAIT_S
        while True:
            has_ended = client.poll() is not None  # before its words are read, so that none are missed
            said = _said(log)
            if (answer := _answer(said)) is not None:
                return answer
            if has_ended:
                raise step_fault(said, job_id=place.job_id)
            if time.monotonic() > deadline:
                _end(client)
                raise too_slow(place.job_id, limit_s, said)
            time.sleep(wait_s)
            wait_s = min(wait_s * 1.5, LONGEST_WAIT_S)

    def _launch(
        self, argv: Sequence[str], place: StepPlace, spec: bytes, output: int
    ) -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as request:  # a file has no end that must be held open
            request.write(spec)
            request.seek(0)
            try:
                client = subprocess.Popen(
                    argv,
                    stdin=request,
                    stdout=output,
                    stderr=output,
                    env=step_environ(place.environ),
                    start_new_session=True,
                )
            except FileNotFoundError as error:
                raise no_srun() from error
        with self._guard:
            # Those that have ended are reaped here; nobody else asks for them.
            self._clients = [each for each in self._clients if each.poll() is None] + [client]
        return client

    def _new_log(self, job_id: int, process_id: str) -> tuple[Path, int]:
        for number in itertools.count(1):
            path = self._logs / f"{process_id}-{job_id}.{number}.log"
            try:
                self._logs.mkdir(mode=0o700, parents=True, exist_ok=True)
                return path, os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o600)
            except FileExistsError:
                continue
            except OSError as error:
                raise cannot("write", path, error) from error
        raise AssertionError("numbers don't end")


def _said(log: Path) -> str:
    with log.open("rb") as file:
        return file.read(MAX_SAID_BYTES).decode("utf-8", "replace")


def _answer(said: str) -> Fields | None:
    """The shim's first line, among what `srun` and a site's prolog say."""
    for line in said.splitlines(keepends=True):
        if line.startswith("{") and line.endswith("\n"):
            try:
                answer = parse_fields("the answer of a step", line.encode())
            except FieldError:
                continue
            if "started" in answer.values or "error" in answer.values:
                return answer
    return None


def _end(client: subprocess.Popen[bytes]) -> None:
    """`srun` that is told to end takes its step with it."""
    client.terminate()
    try:
        client.wait(10)
    except subprocess.TimeoutExpired:
        client.kill()
        client.wait()
