"""Commands on one node of a job, through steps."""

from __future__ import annotations

import contextlib
import os
import secrets
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Sequence

from pdctl.executors.remote_command import PUT_TIMEOUT_S, put_command, put_fault
from pdctl.executors.shell import Completed
from pdctl.executors.slurm_job.session import MAX_SAID_BYTES, Session
from pdctl.executors.slurm_job.srun import StepPlace, no_srun, step_argv, step_environ, step_fault


class SrunShell:
    """One step for all commands; one of its own for each that streams. For several threads at a time."""

    def __init__(self, place: StepPlace, *, python: str, connect_timeout_s: float) -> None:
        self._place = place
        self._python = python
        self._connect_timeout_s = connect_timeout_s
        self._opening = threading.Lock()
        self._session: Session | None = None

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        return self._open().run(argv, stdin=stdin, timeout_s=timeout_s)

    def put(self, path: str, content: bytes) -> None:
        argv = put_command(path, len(content), secrets.token_hex(8))
        done = self.run(argv, stdin=content, timeout_s=PUT_TIMEOUT_S)
        if (fault := put_fault(done)) is not None:
            raise fault

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> SrunStream:
        return SrunStream(self._place, argv, stdin)

    def close(self) -> None:
        """End the step. The next command starts another."""
        with self._opening:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def _open(self) -> Session:
        with self._opening:
            if self._session is None or self._session.is_over:
                self._session = Session(
                    self._place, python=self._python, connect_timeout_s=self._connect_timeout_s
                )
            return self._session


class SrunStream:
    """A running command's lines. `close` may come from another thread than the one that reads."""

    def __init__(self, place: StepPlace, argv: Sequence[str], stdin: bytes) -> None:
        self._job_id = place.job_id
        self._is_closed = False
        self._has_reader = False
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the step
        try:
            self._child = subprocess.Popen(
                step_argv(place, "pdctl", argv),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._said,
                env=step_environ(place.environ),
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise no_srun() from error
        assert self._child.stdin is not None
        # When it has ended already, its end, which the reader sees, tells why.
        with contextlib.suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(stdin)

    def __iter__(self) -> Iterator[bytes]:
        """Raises `UnreachableError` when the step is lost, which is not the command's end."""
        assert self._child.stdout is not None
        self._has_reader = True
        with self._child.stdout as lines:
            for line in lines:
                yield line.rstrip(b"\n")
        code = self._child.wait()
        said = os.pread(self._said.fileno(), MAX_SAID_BYTES, 0).decode("utf-8", "replace")
        if code != 0 and not self._is_closed and "Exited with exit code" not in said:
            raise step_fault(said, job_id=self._job_id, has_begun=True)

    def close(self) -> None:
        """`srun` that is told to end kills its task at once, with all that this has started."""
        self._is_closed = True
        self._child.terminate()
        try:
            self._child.wait(10)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if not self._has_reader and self._child.stdout:
            self._child.stdout.close()
