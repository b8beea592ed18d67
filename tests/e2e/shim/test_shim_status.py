"""What the shim tells of processes after everything that may happen to them and to their records."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def _edit(path: Path, **fields: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_bytes()), **fields}))


def test_what_was_never_started_is_absent(node):
    assert node.ask("status") == []


@pytest.mark.parametrize(
    ("program", "code", "number"),
    [
        ("raise SystemExit(0)", 0, None),
        ("raise SystemExit(7)", 7, None),
        ("import os; os.kill(0, 9)", None, 9),
    ],
)
def test_the_end_is_recorded_by_code_or_signal(node, wait_until, program, code, number):
    node.start_python("a-0.0", program)
    node.wait_for_exit("a-0.0")
    entry = node.status("a-0.0")
    assert (entry["exit_code"], entry["signal"], entry["is_stopped"]) == (code, number, False)
    assert entry["ended_at"] >= entry["started_at"]


def test_the_age_of_a_process_does_not_depend_on_what_time_it_is(node):
    start = node.start("a-0.0", "sleep", "100")
    recorded = node.run_dir("a-0.0") / "status.json"
    recorded.write_text(json.dumps({**node.recorded("a-0.0"), "started_at": 0.0}))
    entry = node.status("a-0.0")
    assert (entry["pid"], entry["started_at"]) == (start["pid"], 0.0)
    assert 0 <= entry["age_s"] < 60
    node.stop("a-0.0")
    assert node.status("a-0.0")["age_s"] is None


def test_a_killed_worker_was_not_stopped_by_us(node, wait_until):
    os.kill(node.start("a-0.0", "sleep", "100")["pid"], signal.SIGKILL)
    node.wait_for_exit("a-0.0")
    entry = node.status("a-0.0")
    assert (entry["signal"], entry["is_stopped"]) == (signal.SIGKILL, False)


def test_a_worker_without_its_shim_is_an_orphan(node, is_alive):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    node.kill_shim("a-0.0")
    entry = node.status("a-0.0")
    assert (entry["state"], entry["reason"], entry["pid"]) == ("orphaned", "its shim is gone", pid)
    assert is_alive(pid)


def test_an_orphan_goes_on_writing_its_output(node, wait_until):
    """A worker whose output went through its shim would die of SIGPIPE here."""
    program = "import time\nfor n in range(9999): print(n, flush=True); time.sleep(0.01)"
    node.start_python("a-0.0", program)
    node.kill_shim("a-0.0")
    written = len(node.output("a-0.0"))
    wait_until(lambda: len(node.output("a-0.0")) > written + 20)


def test_worker_and_shim_killed_is_lost(node, wait_until):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    node.kill_shim("a-0.0")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: node.status("a-0.0")["state"] == "lost")
    assert node.status("a-0.0")["reason"] == "it ended without a record of how"


def test_after_a_reboot_the_recorded_pids_mean_nothing(node, is_alive):
    pid = node.start("a-0.0", "true")["pid"]
    node.wait_for_exit("a-0.0")
    stranger = subprocess.Popen(["sleep", "100"])
    ticks = int(Path(f"/proc/{stranger.pid}/stat").read_text().rpartition(")")[2].split()[19])
    folder = node.run_dir("a-0.0")
    (folder / "exit.json").unlink()
    _edit(folder / "status.json", boot_id="an earlier boot", pid=stranger.pid, start_ticks=ticks)
    entry, outcomes = node.status("a-0.0"), node.stop("a-0.0")
    assert (entry["state"], entry["reason"], entry["num_alive"]) == ("lost", "the host rebooted", 0)
    assert not outcomes[0]["was_alive"]
    assert is_alive(stranger.pid)
    assert pid != stranger.pid
    stranger.kill()
    stranger.wait()


@pytest.fixture
def processes(node, wait_until) -> Iterator[Path]:
    """/proc of a node that counts its pids by itself: nobody else takes a number that is to come again."""
    if os.geteuid() != 0:
        pytest.skip("only root can choose the next pid")
    reap = "import signal, time; signal.signal(signal.SIGCHLD, signal.SIG_IGN); time.sleep(1000)"
    unshare = ["unshare", "--pid", "--mount-proc", "--fork", "--kill-child", sys.executable, "-S", "-c", reap]
    with subprocess.Popen(unshare) as power:
        children = Path(f"/proc/{power.pid}/task/{power.pid}/children")
        init = wait_until(lambda: children.read_text().strip(), "the node's first process")
        proc = Path(f"/proc/{init}/root/proc")
        wait_until(lambda: (proc / "1/cmdline").read_bytes().startswith(os.fsencode(sys.executable)))
        node.enter = ("nsenter", "--target", init, "--pid", "--mount", "--wd=/")
        yield proc
        node.enter = ()
        power.kill()


def test_a_stranger_with_the_workers_old_pid_is_left_alone(node, processes, wait_until):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    subprocess.run([*node.enter, "kill", "-9", str(node.recorded("a-0.0")["shim_pid"]), str(pid)], check=True)
    wait_until(lambda: not (processes / str(pid)).exists())
    take = f"echo {pid - 1} >/proc/sys/kernel/ns_last_pid; sleep 99 & echo $!; wait"
    with subprocess.Popen([*node.enter, "sh", "-c", take], stdout=subprocess.PIPE, text=True) as taker:
        assert taker.stdout.readline() == f"{pid}\n"
        assert node.status("a-0.0")["state"] == "lost"
        assert not node.stop("a-0.0")[0]["was_alive"]
        assert (processes / str(pid) / "comm").read_text() == "sleep\n"
        taker.kill()
        subprocess.run([*node.enter, "kill", "-9", str(pid)], check=True)


@pytest.mark.parametrize("content", [b"", b'{"boot_id": "', b"\0" * 300, b"[]"])
def test_a_damaged_status_file_hides_no_running_process(node, is_alive, content):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    (node.run_dir("a-0.0") / "status.json").write_bytes(content)
    entry = node.status("a-0.0")
    told = (entry["state"], entry["reason"], entry["pid"], entry["digest"])
    assert told == ("running", "its status.json is damaged", pid, "d1")
    assert node.stop("a-0.0")[0]["was_alive"]
    assert not is_alive(pid)
    assert node.status("a-0.0")["state"] == "exited"


def test_a_damaged_status_file_and_a_dead_shim_hide_no_orphan(node, is_alive):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    node.kill_shim("a-0.0")
    (node.run_dir("a-0.0") / "status.json").write_bytes(b"{")
    entry = node.status("a-0.0")
    assert (entry["state"], entry["pid"]) == ("orphaned", pid)
    assert node.stop("a-0.0")[0]["was_alive"]
    assert not is_alive(pid)


def test_a_damaged_spec_leaves_the_digest_known(node):
    node.start("a-0.0", "sleep", "100")
    (node.run_dir("a-0.0") / "spec.json").write_bytes(b"{")
    entry = node.status("a-0.0")
    assert (entry["state"], entry["digest"], entry["node"]) == ("running", "d1", "n1")


def test_a_zombie_is_not_running(node, wait_until, kill):
    """The shim is stopped, so nobody reaps its worker."""
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    shim = node.recorded("a-0.0")["shim_pid"]
    os.kill(shim, signal.SIGSTOP)
    wait_until(lambda: Path(f"/proc/{shim}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    kill(pid)
    entry = node.status("a-0.0")
    assert (entry["state"], entry["num_alive"]) == ("lost", 0)
    assert entry["reason"] == "it has ended and its shim does not answer"
    os.kill(shim, signal.SIGCONT)
    node.wait_for_exit("a-0.0")
    assert node.status("a-0.0")["signal"] == signal.SIGKILL


@pytest.mark.parametrize("levels", [0, 1, 2, 3])
def test_a_process_is_found_after_its_directory_was_removed(node, is_alive, wait_until, levels):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    shim = node.recorded("a-0.0")["shim_pid"]
    shutil.rmtree([node.run_dir("a-0.0"), *node.run_dir("a-0.0").parents][levels])
    entry = node.status("a-0.0")
    told = (entry["state"], entry["reason"], entry["pid"], entry["run_id"], entry["node"])
    assert told[:2] == ("orphaned", "its run directory was removed")
    assert told[3:] == ("000001", "n1")
    assert node.ask_names("list", str(node.root)) == ["demo"]
    assert node.stop("a-0.0")[0] | {"elapsed_s": 0} == {
        "process_id": "a-0.0",
        "was_alive": True,
        "killed": False,
        "elapsed_s": 0,
        "pids": [pid],
        "survivors": [],
    }
    assert not is_alive(pid)
    wait_until(lambda: not is_alive(shim))  # nothing names it any more, so `stop` did not wait for it


def test_memory_counts_the_whole_tree(node, wait_until):
    program = (
        "import subprocess, sys, time\n"
        "grow = 'import time; held = bytearray(60_000_000); print(1, flush=True); time.sleep(100)'\n"
        "subprocess.Popen([sys.executable, '-S', '-c', grow]); time.sleep(100)"
    )
    node.start_python("a-0.0", program)
    wait_until(lambda: node.output("a-0.0") == "1\n")
    entry = node.status("a-0.0")
    assert entry["num_alive"] == 2
    assert 60_000_000 < entry["rss_bytes"] < 120_000_000


def test_processes_of_other_nodes_are_left_out_when_a_node_is_named(node):
    node.start("a-0.0", "sleep", "100", node="n1")
    node.start("a-0.1", "sleep", "100", node="n2")
    found = node.ask("status", request={"node": "n2"})
    assert [entry["process_id"] for entry in found] == ["a-0.1"]
