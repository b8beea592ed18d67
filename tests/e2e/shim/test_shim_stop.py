"""Stopping processes that don't want to, and all that they left behind."""

from __future__ import annotations

import os
import signal

import pytest

IGNORE_TERM = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(100)"
)

# Each prints the pid of a process that has left its parent, then waits.
_CHILD = "import subprocess; print(subprocess.Popen(['sleep', '99'], start_new_session=True{env}).pid)"
_DAEMON = """
import os
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    print(os.getpid(), flush=True)
    os.execve('/bin/sleep', ['sleep', '99'], {env})
"""
RUNAWAYS = {
    "new_session": _CHILD.format(env=""),
    "new_session_without_marker": _CHILD.format(env=", env={}"),
    "daemon": _DAEMON.format(env="os.environ"),
    "daemon_without_marker": _DAEMON.format(env="{}"),
}


def _start_runaway(node, wait_until, kind: str, then: str) -> tuple[int, int]:
    answer = node.start_python("a-0.0", f"{RUNAWAYS[kind]}\nimport time; {then}")
    wait_until(lambda: node.output("a-0.0").endswith("\n"))
    return answer["pid"], int(node.output("a-0.0"))


def _wait_for_two(node, wait_until) -> dict:
    """The status when worker and runaway are left: a parent in between may take a moment to end."""
    return wait_until(lambda: (entry := node.status("a-0.0"))["num_alive"] == 2 and entry, "two alive")


def _start_two_silent_children(node, wait_until) -> tuple[int, int, int]:
    """The worker and two children without a marker: one without our output, too, and one with it."""
    program = (
        "import subprocess, time\n"
        "null = subprocess.DEVNULL\n"
        "print(subprocess.Popen(['sleep', '99'], env={}, stdout=null, stderr=null).pid)\n"
        "print(subprocess.Popen(['sleep', '99'], env={}).pid, flush=True); time.sleep(100)"
    )
    pid = node.start_python("a-0.0", program)["pid"]
    wait_until(lambda: node.output("a-0.0").count("\n") == 2)
    silent, with_output = map(int, node.output("a-0.0").split())
    return pid, silent, with_output


def _kill_with_shim(node, kill, pid: int) -> None:
    node.kill_shim("a-0.0")
    kill(pid)


def test_stop_is_verified_and_recorded(node, is_alive):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    shim = node.recorded("a-0.0")["shim_pid"]
    (outcome,) = node.stop("a-0.0")
    assert (outcome["was_alive"], outcome["killed"], outcome["survivors"]) == (True, False, [])
    assert not is_alive(pid)
    assert not is_alive(shim)
    entry = node.status("a-0.0")
    assert (entry["state"], entry["signal"], entry["is_stopped"]) == ("exited", signal.SIGTERM, True)


def test_a_process_may_end_in_its_own_way_within_the_grace(node, wait_until):
    program = (
        "import signal, time\n"
        "def leave(*_): time.sleep(0.3); print('drained', flush=True); raise SystemExit(3)\n"
        "signal.signal(signal.SIGTERM, leave); print('up'); time.sleep(100)"
    )
    node.start_python("a-0.0", program, grace_s=60)
    wait_until(lambda: node.output("a-0.0"))
    (outcome,) = node.stop("a-0.0")
    assert (outcome["killed"], node.output("a-0.0")) == (False, "up\ndrained\n")
    assert node.status("a-0.0")["exit_code"] == 3


def test_a_process_that_ignores_term_is_killed_after_the_grace(node, wait_until, is_alive):
    pid = node.start_python("a-0.0", IGNORE_TERM, grace_s=100)["pid"]
    wait_until(lambda: node.output("a-0.0"))
    (outcome,) = node.stop("a-0.0", grace_s=0.5)
    assert (outcome["killed"], outcome["survivors"]) == (True, [])
    assert 0.5 <= outcome["elapsed_s"] < 100
    assert not is_alive(pid)
    assert node.status("a-0.0")["signal"] == signal.SIGKILL


def test_the_specs_own_grace_holds_when_none_is_given(node, wait_until):
    node.start_python("a-0.0", IGNORE_TERM, grace_s=0.2)
    wait_until(lambda: node.output("a-0.0"))
    (outcome,) = node.stop("a-0.0")
    assert outcome["killed"]
    assert outcome["elapsed_s"] >= 0.2


@pytest.mark.parametrize("kind", RUNAWAYS)
def test_a_grandchild_that_left_the_session_is_stopped_too(node, wait_until, is_alive, kind):
    pid, runaway = _start_runaway(node, wait_until, kind, "time.sleep(100)")
    assert _wait_for_two(node, wait_until)["state"] == "running"
    (outcome,) = node.stop("a-0.0", grace_s=0.5)
    assert outcome["survivors"] == []
    assert not is_alive(pid)
    assert not is_alive(runaway)


@pytest.mark.parametrize("kind", RUNAWAYS)
def test_what_a_worker_leaves_behind_ends_with_it(node, wait_until, is_alive, kind):
    """It would hold the worker's ports and device memory against the next run."""
    _, runaway = _start_runaway(node, wait_until, kind, "raise SystemExit(4)")
    wait_until(lambda: not is_alive(runaway))
    entry = node.status("a-0.0")
    assert (entry["state"], entry["exit_code"]) == ("exited", 4)
    assert node.start("a-0.0", "true")["started"]


@pytest.mark.parametrize("kind", RUNAWAYS)
def test_an_orphans_grandchildren_are_found_by_their_marker_or_output(node, wait_until, is_alive, kill, kind):
    """One without the marker is what a scheduler of SGLang is: it writes its title over its environment."""
    pid, runaway = _start_runaway(node, wait_until, kind, "time.sleep(100)")
    _wait_for_two(node, wait_until)
    _kill_with_shim(node, kill, pid)
    entry = node.status("a-0.0")
    assert (entry["state"], entry["num_alive"]) == ("lost", 1)
    assert not node.start("a-0.0", "true")["started"]
    (outcome,) = node.stop("a-0.0")
    assert (outcome["was_alive"], outcome["survivors"]) == (True, [])
    assert not is_alive(runaway)


def test_one_member_with_our_output_vouches_for_the_whole_session(node, wait_until, is_alive, kill):
    """A member that has neither marker nor output is found by the company that it keeps."""
    pid, silent, _ = _start_two_silent_children(node, wait_until)
    _kill_with_shim(node, kill, pid)
    assert node.status("a-0.0")["num_alive"] == 2
    assert node.stop("a-0.0")[0]["survivors"] == []
    assert not is_alive(silent)


def test_a_session_in_which_nobody_is_ours_for_certain_is_left_alone(node, wait_until, is_alive, kill):
    """Its number may have passed to strangers after all of ours had ended."""
    pid, silent, with_output = _start_two_silent_children(node, wait_until)
    _kill_with_shim(node, kill, pid)
    kill(with_output)
    assert node.status("a-0.0")["num_alive"] == 0
    assert not node.stop("a-0.0")[0]["was_alive"]
    assert is_alive(silent)
    kill(silent)


def test_an_orphan_is_stopped_and_its_end_is_on_record(node, is_alive):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    node.kill_shim("a-0.0")
    assert node.stop("a-0.0")[0]["survivors"] == []
    assert not is_alive(pid)
    entry = node.status("a-0.0")
    assert (entry["state"], entry["is_stopped"], entry["exit_code"]) == ("exited", True, None)
    assert entry["reason"] == "stopped without its shim, so its exit code is not known"


def test_several_are_stopped_at_the_same_time(node, wait_until, tmp_path):
    """Each goes only when all have been told to: one after the other, the first would not go in its grace."""
    names = [f"a-0.{number}" for number in range(6)]
    program = (
        "import os, signal, time\n"
        "def leave(*_):\n"
        f"    open('{tmp_path}/told-%d' % os.getpid(), 'w').close()\n"
        f"    while sum(name.startswith('told-') for name in os.listdir('{tmp_path}')) < {len(names)}:\n"
        "        time.sleep(0.02)\n"
        "    raise SystemExit(0)\n"
        "signal.signal(signal.SIGTERM, leave); print('up'); time.sleep(100)"
    )
    for name in names:
        node.start_python(name, program)
    wait_until(lambda: all(node.output(name) for name in names))
    outcomes = node.stop(*names, grace_s=60)
    assert [outcome["process_id"] for outcome in outcomes] == names
    assert not any(outcome["killed"] or outcome["survivors"] for outcome in outcomes)


def test_stopping_what_was_never_started_or_has_ended_is_no_fault(node, wait_until):
    node.start("a-0.0", "true")
    node.wait_for_exit("a-0.0")
    assert [outcome["was_alive"] for outcome in node.stop("a-0.0", "never-0.0")] == [False, False]
    assert node.status("a-0.0")["exit_code"] == 0


def test_a_frozen_process_and_a_frozen_shim_are_stopped(node, is_alive):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    shim = node.recorded("a-0.0")["shim_pid"]
    os.kill(pid, signal.SIGSTOP)
    os.kill(shim, signal.SIGSTOP)
    (outcome,) = node.stop("a-0.0", grace_s=0.3)
    assert outcome["survivors"] == []
    assert not is_alive(pid)
    assert not is_alive(shim)


def test_term_to_the_shim_ends_its_process_as_a_stop_would(node, wait_until, is_alive):
    """What a host that shuts down sends to everybody."""
    pid = node.start_python("a-0.0", IGNORE_TERM, grace_s=0.3)["pid"]
    wait_until(lambda: node.output("a-0.0"))
    os.kill(node.recorded("a-0.0")["shim_pid"], signal.SIGTERM)
    wait_until(lambda: not is_alive(pid))
    entry = node.wait_for_exit("a-0.0")
    assert (entry["signal"], entry["is_stopped"]) == (signal.SIGKILL, True)


def test_other_deployments_and_other_roots_are_not_touched(node, tmp_path, is_alive):
    other = node.ask_names(
        "start",
        str(tmp_path / "run-2"),
        "demo",
        "a-0.0",
        request=node.spec("a-0.0", "sleep", "100"),
    )
    longer = node.ask_names(
        "start",
        str(node.root),
        "demo-2",
        "a-0.0",
        request={**node.spec("a-0.0", "sleep", "100"), "deployment": "demo-2"},
    )
    node.start("a-0.0", "sleep", "100")
    node.stop("a-0.0")
    assert is_alive(other["pid"])
    assert is_alive(longer["pid"])
    for root, deployment in ((tmp_path / "run-2", "demo"), (node.root, "demo-2")):
        assert node.ask_names("stop", str(root), deployment, "a-0.0")[0]["was_alive"]
