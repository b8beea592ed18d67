"""Starting processes through the packed shim."""

from __future__ import annotations

import ast
import json
import os
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest


def test_start_answers_when_the_program_runs(node, is_alive):
    answer = node.start("a-0.0", "sleep", "100")
    entry = node.status("a-0.0")
    assert answer == {"started": True, "run_id": "000001", "pid": answer["pid"], "error": None}
    assert is_alive(answer["pid"])
    told = {name: entry[name] for name in ("state", "pid", "digest", "node", "argv", "grace_s", "exit_code")}
    assert told == {
        "state": "running",
        "pid": answer["pid"],
        "digest": "d1",
        "node": "n1",
        "argv": ["sleep", "100"],
        "grace_s": 5.0,
        "exit_code": None,
    }
    assert Path(f"/proc/{answer['pid']}/cmdline").read_bytes() == b"sleep\0" + b"100\0"


@pytest.mark.parametrize(
    ("program", "code", "why"),
    [
        ("/no/such/python", 127, "cannot execute `/no/such/python`: No such file or directory"),
        ("/etc/passwd", 126, "cannot execute `/etc/passwd`: Permission denied"),
    ],
)
def test_a_program_that_cannot_be_executed_is_an_answer_and_on_record(node, program, code, why):
    answer = node.start("a-0.0", program)
    entry = node.status("a-0.0")
    assert (answer["started"], answer["error"]) == (False, why)
    assert (entry["state"], entry["exit_code"], entry["reason"]) == ("exited", code, why)


def test_a_missing_working_directory_is_told_apart_from_a_missing_program(node):
    assert node.start("a-0.0", "true", cwd="/no/such")["error"].startswith("cannot enter `/no/such`")


def test_the_environment_is_the_nodes_own_with_the_specs_over_it(node, wait_until, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("KEPT", "yes")
    monkeypatch.setenv("REMOVED", "no")
    env = {"ADDED": "ü = '$x'\n", "REMOVED": None, "PYTHONUNBUFFERED": "1"}
    node.start_python("a-0.0", "import os; print(dict(os.environ))", env=env)
    node.wait_for_exit("a-0.0")
    seen = ast.literal_eval(node.output("a-0.0"))
    assert (seen["KEPT"], seen["ADDED"], seen["PYTHONUNBUFFERED"]) == ("yes", "ü = '$x'\n", "1")
    assert not {"PYTHONPATH", "REMOVED"} & seen.keys()
    assert seen["PDCTL_PROCESS"] == "demo/a-0.0/000001"
    assert seen["PDCTL_RUN_DIR"] == str(node.run_dir("a-0.0"))


def test_the_worker_has_its_own_session_default_signals_and_no_inherited_files(node, wait_until):
    program = (
        "import os, signal; print([os.getsid(0) == os.getpid(), signal.getsignal(signal.SIGINT) is"
        " signal.default_int_handler, signal.pthread_sigmask(0, []), sorted(os.listdir('/proc/self/fd'))])"
    )
    node.start_python("a-0.0", program)
    node.wait_for_exit("a-0.0")
    assert ast.literal_eval(node.output("a-0.0").replace("set()", "()")) == [
        True,
        True,
        (),
        ["0", "1", "2", "3"],
    ]


def test_a_worker_lives_on_when_the_session_that_started_it_is_killed(node, is_alive):
    """What a lost SSH connection does: HUP and KILL to everything in the caller's session."""
    spec = json.dumps(node.spec("a-0.0", "sleep", "100"))
    command = [*node.argv("start", str(node.root), "demo", "a-0.0")]
    caller = subprocess.Popen(
        ["sh", "-c", 'printf %s "$SPEC" | "$@"; echo done; sleep 100', "sh", *command],
        env={**os.environ, "SPEC": spec},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert caller.stdout is not None
    pid = json.loads(caller.stdout.readline())["pid"]
    assert caller.stdout.readline() == "done\n"
    os.killpg(caller.pid, signal.SIGHUP)
    caller.wait()
    # Nothing of the shim may hold the caller's pipe: then its reader would wait for ever.
    assert caller.stdout.read() == ""
    caller.stdout.close()
    assert is_alive(pid)
    assert node.status("a-0.0")["state"] == "running"


def test_of_ten_simultaneous_starts_one_starts(node):
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: node.start("a-0.0", "sleep", "100"), range(10)))
    errors = {answer["error"] for answer in answers if not answer["started"]}
    assert [answer["started"] for answer in answers].count(True) == 1
    assert errors == {"it is already running"}
    assert node.status("a-0.0")["num_alive"] == 1


def test_a_refused_start_tells_what_runs(node):
    first = node.start("a-0.0", "sleep", "100", digest="old")
    refused = node.start("a-0.0", "sleep", "100", digest="new")
    assert (refused["running"]["pid"], refused["running"]["digest"]) == (first["pid"], "old")


def test_each_start_is_a_new_run_and_the_output_of_the_last_one_is_kept(node, wait_until):
    for number in range(1, 4):
        program = f"mkdir -p cache/deep; touch cache/deep/file; echo {number}"
        assert node.start("a-0.0", "sh", "-c", program)["run_id"] == f"00000{number}"
        node.wait_for_exit("a-0.0")
    assert not node.run_dir("a-0.0", 1).exists()
    assert [node.output("a-0.0", number) for number in (2, 3)] == ["2\n", "3\n"]


def test_no_start_beside_an_orphan(node):
    first = node.start("a-0.0", "sleep", "100")
    node.kill_shim("a-0.0")
    refused = node.start("a-0.0", "sleep", "100")
    assert refused["error"] == "an earlier run of it is still alive without its shim"
    assert (refused["running"]["state"], refused["running"]["pid"]) == ("orphaned", first["pid"])


def test_no_start_beside_a_process_whose_directory_was_removed(node):
    node.start("a-0.0", "sleep", "100")
    shutil.rmtree(node.root)
    refused = node.start("a-0.0", "sleep", "100")
    assert not refused["started"]
    assert refused["running"]["state"] == "orphaned"


@pytest.mark.parametrize("name", ["..", "../x", "a/b", "", ".hidden", "UPPER", "a..b"])
def test_names_that_could_leave_the_root_are_refused(node, name):
    request = node.spec(name, "true")
    assert "is not a name" in node.ask_names("start", str(node.root), "demo", name, request=request)["error"]
    assert not node.root.exists()


@pytest.mark.parametrize(
    "fields",
    [
        {"argv": []},
        {"argv": "ls"},
        {"argv": ["a\0b"]},
        {"env": {"A": 1}},
        {"env": {"A=B": "x"}},
        {"format": 2},
    ],
)
def test_a_spec_that_makes_no_sense_is_refused(node, fields):
    request = {**node.spec("a-0.0", "true"), **fields}
    assert set(node.ask("start", "a-0.0", request=request)) == {"error"}


def test_run_directories_are_the_users_alone(node):
    node.start("a-0.0", "sleep", "100", env={"HF_TOKEN": "secret"})
    folder = node.run_dir("a-0.0")
    assert [path.stat().st_mode & 0o077 for path in (node.root, folder, *folder.iterdir())] == [0] * 6


def _pythons() -> list[str]:
    """One interpreter of each version on this machine, the one that runs this test among them."""
    folders = [Path(folder) for folder in os.get_exec_path()] + list(
        Path.home().glob(".pyenv/versions/*/bin")
    )
    found = {f"3.{sys.version_info.minor}": sys.executable}
    for minor in range(8, 20):
        for folder in folders:
            python = folder / f"python3.{minor}"
            if f"3.{minor}" not in found and python.is_file() and "shims" not in python.parts:
                found[f"3.{minor}"] = str(python)
    return list(found.values())


@pytest.mark.parametrize("python", _pythons())
def test_every_version_of_python_runs_the_same_file(node, python):
    node.python = python
    assert node.start("a-0.0", "sleep", "100")["started"]
    assert node.status("a-0.0")["state"] == "running"
    assert [outcome["survivors"] for outcome in node.stop("a-0.0")] == [[]]
    assert node.status("a-0.0")["signal"] == signal.SIGTERM


def test_the_shim_itself_is_small(node):
    """Not a figure, a fence: a heavy import in the shim would cost every node this much per process."""
    node.start("a-0.0", "sleep", "100")
    pid = node.recorded("a-0.0")["shim_pid"]
    with open(f"/proc/{pid}/smaps_rollup") as file:  # noqa: PTH123 - a proc file
        pss_kb = next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
    assert pss_kb < 9000, sys.version
