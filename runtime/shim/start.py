"""The verb `start`: make a run directory, become a daemon, answer when the worker's program has begun.

The answer is `{"started": true, "run_id", "pid"}`, or `{"started": false, "error"}`, with `"running"`, the
status entry of the run that is in the way, when there is one.
"""

from __future__ import annotations

import os
import time

from . import jsontext
from .family import Family
from .proc import Table, boot_id, read_process
from .record import (
    EXIT,
    LOCK,
    SPEC,
    STATUS,
    RequestError,
    lock_in,
    make_private_dirs,
    read_json,
    remove_tree,
    reserve_exit,
    run_ids,
    write_json,
)
from .status import describe
from .supervise import supervise
from .worker import Run

SPEC_FORMAT = 1
KEPT_RUNS = 1  # earlier runs whose output stays, so that the reason of a crash survives the restart
FINISHING_S = 8.0  # how long a shim may need after its worker ended: leftovers get a grace too


def start(root: str, deployment: str, process_id: str, spec: dict) -> dict:
    """Of any number of simultaneous calls for one process, one starts it."""
    run = prepared(root, deployment, process_id, spec)
    return run if isinstance(run, dict) else _daemonise(run)


def prepared(root: str, deployment: str, process_id: str, spec: dict) -> Run | dict:
    """A run of the process that is ours to supervise, or the answer where there is none to make."""
    _check_spec(spec, deployment, process_id)
    process_dir = os.path.join(root, deployment, process_id)
    begun = _begun(process_dir, spec.get("start_id"))
    if begun:
        return begun
    try:
        lock = _claim(process_dir)
        if lock is None:
            return _refuse(process_dir, process_id, "it is already running")
        family = Family(process_dir, Table(), boot_id())
        if family.members:
            return _refuse(process_dir, process_id, "an earlier run of it is still alive without its shim")
        _prune(process_dir)
        return _make_run(process_dir, lock, spec)
    except OSError as error:
        return {"started": False, "error": "cannot make its run directory: %s" % error}


def _check_spec(spec: dict, deployment: str, process_id: str) -> None:
    if spec.get("format") != SPEC_FORMAT:
        raise RequestError("the spec's format is %r, wanted %d" % (spec.get("format"), SPEC_FORMAT))
    if (spec.get("deployment"), spec.get("process_id")) != (deployment, process_id):
        raise RequestError("the spec is for another process")
    argv, env = spec.get("argv"), spec.get("env", {})
    if not isinstance(argv, list) or not argv or not all(_is_text(word) for word in argv):
        raise RequestError("`argv` is not a list of words")
    if not isinstance(env, dict) or not all(
        _is_text(name) and "=" not in name and (value is None or _is_text(value))
        for name, value in env.items()
    ):
        raise RequestError("`env` does not map names to text or null")


def _is_text(value: object) -> bool:
    return isinstance(value, str) and "\0" not in value


def _begun(process_dir: str, start_id: object) -> dict | None:
    """What this very start was answered before, when the answer got lost; it may have ended since."""
    runs = run_ids(process_dir)
    run_dir = os.path.join(process_dir, runs[-1]) if runs else ""
    if not runs or start_id is None or read_json(os.path.join(run_dir, SPEC)).get("start_id") != start_id:
        return None
    pid = read_json(os.path.join(run_dir, STATUS)).get("pid")
    return {"started": True, "run_id": runs[-1], "pid": pid, "error": None} if pid else None


def _claim(process_dir: str) -> int | None:
    """Lock the process for the life of its shim. A shim that is about to end is waited for."""
    deadline = time.monotonic() + FINISHING_S
    while True:
        lock = lock_in(process_dir, LOCK)
        if lock is not None:
            _sign(lock)
            return lock
        runs = run_ids(process_dir)
        has_ended = bool(runs) and bool(read_json(os.path.join(process_dir, runs[-1], EXIT)))
        if not has_ended or time.monotonic() > deadline:
            return None
        time.sleep(0.02)


def _sign(lock: int) -> None:
    """Write who holds the lock, for readers that must not take it to find out."""
    me = read_process(os.getpid())
    text = jsontext.dumps(
        {"pid": os.getpid(), "start_ticks": me.start_ticks if me else None, "boot_id": boot_id()}
    )
    os.pwrite(lock, text.encode().ljust(256), 0)


def _refuse(process_dir: str, process_id: str, error: str) -> dict:
    boot = boot_id()
    family = Family(process_dir, Table(), boot)
    return {"started": False, "error": error, "running": describe(process_id, family, boot)}


def _prune(process_dir: str) -> None:
    for run_id in run_ids(process_dir)[:-KEPT_RUNS]:
        # Whatever lies in it: it is the working directory of its worker, too.
        remove_tree(os.path.join(process_dir, run_id))


def _make_run(process_dir: str, lock: int, spec: dict) -> Run:
    runs = run_ids(process_dir)
    run_id = "%06d" % (int(runs[-1]) + 1 if runs else 1)
    directory = os.path.join(process_dir, run_id)
    make_private_dirs(directory)
    try:
        write_json(os.path.join(directory, SPEC), spec)
        return Run(directory, run_id, lock, reserve_exit(os.path.join(directory, EXIT)), spec)
    except OSError:
        # A run that could not be recorded must not hide the one before it.
        remove_tree(directory)
        raise


def _daemonise(run: Run) -> dict:
    """Fork twice, so that the shim belongs to no terminal, session or connection; relay what it says."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        if os.fork() == 0:
            _sign(run.lock)
            supervise(run, writing)
        os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as answers:
        answer = answers.read()
    if not answer:
        return {"started": False, "error": "its shim ended before it started"}
    found = jsontext.loads(answer)
    assert isinstance(found, dict), "it is our own child that answers"
    return found
