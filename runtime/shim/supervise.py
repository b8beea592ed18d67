"""The life of a shim: start the worker, bound its output, record its end, end what it left behind."""

from __future__ import annotations

import os
import time

from . import jsontext
from .output import Output
from .proc import Process, Table, send_signal
from .record import EXIT, read_json, write_exit
from .signals import signal
from .worker import WATCHED, Run, start_worker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36
LEFTOVER_GRACE_S = 2.0
KILL_TRIES_S = 5.0
DEFAULT_GRACE_S = 10.0


def supervise(run: Run, answers: int) -> None:
    """Everything that the daemon does; never returns. `answers` takes one JSON object, then is closed."""
    try:
        leave_caller(keep=(run.lock, run.exit_file, answers))
        see_through(run, lambda answer: _tell(answers, answer))
    finally:
        os._exit(0)


def see_through(run: Run, tell: Callable[[dict], None]) -> dict:
    """Start the worker, tell whether its program has begun, and give the record of its end."""
    try:
        output = Output(run.directory, run.spec.get("log_max_bytes"))
        pid, error = start_worker(run, output.descriptor)
        tell({"started": not error, "run_id": run.run_id, "pid": pid, "error": error})
        return _watch(run, pid, output) if pid else read_json(os.path.join(run.directory, EXIT))
    except OSError as error:
        return give_up(run, tell, "its shim could not start it: %s" % error)


def give_up(run: Run, tell: Callable[[dict], None], reason: str) -> dict:
    """Say, here and on record, that the program does not begin."""
    tell({"started": False, "error": reason})
    record = {"code": None, "ended_at": time.time(), "reason": reason}
    try:
        write_exit(run.exit_file, record)
    except OSError:  # then the run shows as lost
        pass
    return record


def _tell(answers: int, answer: dict) -> None:
    try:
        os.write(answers, jsontext.dumps(answer).encode())
        os.close(answers)
    except OSError:  # the caller is gone, or was told before
        pass


def leave_caller(keep: tuple[int, ...], silent: bool = True) -> None:
    """Give up everything inherited: an open descriptor of ours would keep the caller's connection open.

    Unless silent, whoever called goes on reading our stdout and stderr.
    """
    _adopt_orphans()
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2) if silent else (0,):
        os.dup2(null, standard)
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) not in keep:
            try:
                os.close(int(name))
            except OSError:  # the listing's own descriptor
                pass
    os.chdir("/")
    signal.pthread_sigmask(signal.SIG_BLOCK, WATCHED)
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)


def _adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end."""
    wanted = (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        import _ctypes  # `ctypes` around it takes longer to load, and stays in the memory of every shim

        program = _ctypes.dlopen(None, os.RTLD_NOW)  # pyright: ignore[reportArgumentType] - as `CDLL(None)` does
        _ctypes.call_function(_ctypes.dlsym(program, "prctl"), wanted)
    except (ImportError, AttributeError):  # another implementation of Python
        import ctypes

        ctypes.CDLL(None).prctl(*wanted)


def _watch(run: Run, pid: int, output: Output) -> dict:
    asked_s = run.spec.get("grace_s")
    grace_s = float(asked_s) if isinstance(asked_s, (int, float)) else DEFAULT_GRACE_S
    stopped, kill_at = False, None
    while True:
        received = signal.sigtimedwait(WATCHED, output.keep_bounded())
        if received and received.si_signo != signal.SIGCHLD:
            stopped = True
        if received and received.si_signo == signal.SIGTERM and kill_at is None:
            # The host shuts down, or somebody ends the shim by hand: end the worker as `stop` would.
            os.killpg(pid, signal.SIGTERM)  # not reaped yet, so the number is still its own
            kill_at = time.monotonic() + grace_s
        wait_status = _reap(pid)
        if wait_status is not None:
            break
        if kill_at is not None and time.monotonic() > kill_at:
            for process in _family(run):
                send_signal(process, signal.SIGKILL)
    record = dict(_ending(wait_status), stopped=stopped, ended_at=time.time(), leftovers=0)
    write_exit(run.exit_file, record)
    num_leftovers = _end_leftovers(run)
    if num_leftovers:
        write_exit(run.exit_file, dict(record, leftovers=num_leftovers))
    return record


def _ending(wait_status: int) -> dict:
    if os.WIFSIGNALED(wait_status):
        return {"code": None, "signal": os.WTERMSIG(wait_status)}
    return {"code": os.WEXITSTATUS(wait_status), "signal": None}


def _reap(worker: int) -> int | None:
    """Collect ended children, adopted ones too; the wait status of the worker once it has ended."""
    found = None
    while True:
        try:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == worker:
            found = wait_status


def _family(run: Run) -> list[Process]:
    """Descendants (we adopt those whose parents ended) and whoever carries the marker."""
    table = Table()
    found = {process.pid: process for process in table.tree(os.getpid()) if process.pid != os.getpid()}
    found.update((process.pid, process) for process, _ in table.carriers(run.directory))
    return list(found.values())


def _end_leftovers(run: Run) -> int:
    """Processes that outlive the worker would hold its ports and device memory against the next run."""
    leftovers = _family(run)
    num_leftovers = len(leftovers)
    started = time.monotonic()
    for process in leftovers:
        send_signal(process, signal.SIGTERM)
    while (leftovers or _has_children()) and time.monotonic() < started + LEFTOVER_GRACE_S + KILL_TRIES_S:
        signal.sigtimedwait(WATCHED, 0.02)
        _reap(0)
        leftovers = _family(run)
        num_leftovers = max(num_leftovers, len(leftovers))
        if time.monotonic() > started + LEFTOVER_GRACE_S:
            for process in leftovers:
                send_signal(process, signal.SIGKILL)
    return num_leftovers


def _has_children() -> bool:
    """Whether the kernel knows children of ours. A look at /proc can miss one whose parent ends just then."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True
