"""The worker: forked by its shim, on record before its program begins."""

from __future__ import annotations

import os
import time

from .proc import NODE_VARIABLE, PROCESS_VARIABLE, RUN_DIR_VARIABLE, boot_id, read_process
from .record import STATUS, write_exit, write_json
from .signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

STOP_ANNOUNCED = signal.SIGUSR1  # sent to a shim by `stop` before it signals the worker
WATCHED = (signal.SIGCHLD, signal.SIGTERM, STOP_ANNOUNCED)  # blocked in a shim, which waits for them
RESTORED = (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ)  # Python and the shim ignore these


class Run:
    """One run: where it lies, its open lock and exit record, what was asked for and given."""

    __slots__ = ("directory", "exit_file", "given", "lock", "run_id", "spec")

    def __init__(self, directory: str, run_id: str, lock: int, exit_file: int, spec: dict) -> None:
        self.directory = directory
        self.run_id = run_id
        self.lock = lock
        self.exit_file = exit_file
        self.spec = spec
        self.given: dict[str, str] = {}  # variables that name the devices which the scheduler gave


def start_worker(run: Run, output: int) -> tuple[int | None, str | None]:
    """Fork the worker and record it before its program begins, so that no program ever runs unrecorded.

    Returns its pid, or why its program could not be executed; then the end is already on record.
    """
    gate_out, gate_in = os.pipe()
    failure_out, failure_in = os.pipe()  # closed by a successful exec
    pid = os.fork()
    if pid == 0:
        os.close(gate_in)
        _become_worker(run, output, gate_out, failure_in)
    os.close(gate_out)
    os.close(failure_in)
    try:
        _record_start(run, pid)
        os.write(gate_in, b"go")
    finally:
        os.close(gate_in)  # without the word, the child leaves
    with os.fdopen(failure_out, "rb") as failures:
        failure = failures.read().decode("utf-8", "replace")
    if failure:
        os.waitpid(pid, 0)
        number, _, text = failure.partition(" ")
        write_exit(run.exit_file, {"code": int(number), "ended_at": time.time(), "reason": text})
        return None, text
    return pid, None


def _record_start(run: Run, pid: int) -> None:
    worker, shim = read_process(pid), read_process(os.getpid())
    if worker is None or shim is None:
        raise OSError("/proc does not show the new process")
    record = {
        "boot_id": boot_id(),
        "shim_pid": shim.pid,
        "shim_start_ticks": shim.start_ticks,
        "pid": worker.pid,
        "start_ticks": worker.start_ticks,
        "started_at": time.time(),
        "digest": run.spec.get("digest"),
        "node": run.spec.get("node"),
        "given": run.given,
        "step": step_id(os.environ),
    }
    write_json(os.path.join(run.directory, STATUS), record)


def _become_worker(run: Run, output: int, gate: int, failures: int) -> None:
    """In the child: wait for the word, then become the program. Never returns."""
    argv, code, text = run.spec["argv"], 126, ""
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        for number in RESTORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, WATCHED)
        if os.read(gate, 2) != b"go":
            os._exit(126)
        directory = run.spec.get("cwd") or run.directory
        text = "cannot enter `%s`" % directory
        os.chdir(directory)
        text = "cannot execute `%s`" % argv[0]
        os.execvpe(argv[0], argv, worker_environment(run, dict(os.environ)))
    except (OSError, ValueError) as error:  # ValueError: text that can't be passed to the kernel
        code = 127 if isinstance(error, FileNotFoundError) else 126  # as a shell says it
        why = error.strerror if isinstance(error, OSError) else "it holds text that is not valid Unicode"
        os.write(failures, ("%d %s: %s" % (code, text, why)).encode("utf-8", "replace"))
    finally:
        os._exit(code)


def step_id(environ: Mapping[str, str]) -> str | None:
    """The step of a Slurm job that we run in, as Slurm writes it; None outside of one."""
    job, step = environ.get("SLURM_JOB_ID"), environ.get("SLURM_STEP_ID")
    return "%s.%s" % (job, step) if job and step else None


def worker_environment(run: Run, inherited: dict[str, str]) -> dict[str, str]:
    """The node's own variables, the spec's over them (null removes one), given devices and the marker on top.

    PYTHON* variables of whoever started us are left out: a caller's PYTHONPATH or PYTHONHOME would silently
    give the worker other libraries than the next start from another terminal. A spec may set them.
    """
    env = {name: value for name, value in inherited.items() if not name.startswith("PYTHON")}
    for name, value in run.spec.get("env", {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    env.update(run.given)
    env[PROCESS_VARIABLE] = "%s/%s/%s" % (run.spec["deployment"], run.spec["process_id"], run.run_id)
    env[RUN_DIR_VARIABLE] = run.directory
    if run.spec.get("node"):
        env[NODE_VARIABLE] = run.spec["node"]
    return env
