"""Faults of the outside world, each with its defined outcome, against real processes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

NEVER_READY = "env: {DUMMY_READY_AFTER_S: '1000'}"
DOOMED = "env: {DUMMY_EXIT_AFTER_S: '0.2', DUMMY_READY_AFTER_S: '1000'}"


# --- Ports and programs -------------------------------------------------------------------------------------


def test_a_port_of_a_stranger_is_named_with_its_holder_and_nothing_starts(bench):
    with socket.create_server(("127.0.0.1", bench.ports["decode"])):
        up = bench.pdctl("up", bench.topology())
    assert up.code == 1
    assert (
        f"error[PD410]: port {bench.ports['decode']} on `localhost` is taken by process {os.getpid()}"
        in up.err
    )
    assert "--set decode.port=NUMBER" in up.err
    assert bench.marked_pids() == []


def test_an_interpreter_that_does_not_exist_is_seen_before_anything_starts(bench):
    up = bench.pdctl("up", bench.topology(), "--set", "router.python=/nowhere/python")
    assert up.code == 1
    assert "error[PD717]: on localhost: `/nowhere/python` can't be run: No such file or directory" in up.err
    assert bench.marked_pids() == []


def test_an_interpreter_that_does_not_exist_is_told_without_the_doctor_too(bench):
    up = bench.pdctl("up", bench.topology(), "--set", "router.python=/nowhere/python", "--skip-doctor")
    assert up.code == 1
    assert "error[PD601]: `router-0.0` could not be started on `localhost`" in up.err
    assert "/nowhere/python" in up.err
    bench.pdctl("down", "bench")


def test_an_engine_that_exits_at_start_is_told_with_its_own_last_lines(bench, wait_until):
    up = bench.pdctl("up", bench.topology(decode=DOOMED))
    assert up.code == 1
    assert "error[PD602]: `decode-0.0` exited with code 3 before the deployment was ready" in up.err
    assert "dummy engine gives up: no luck today" in up.err
    wait_until(lambda: bench.processes()["prefill-0.0"]["phase"] == "ready", "what serves is kept")
    processes = bench.processes()
    assert processes["decode-0.0"]["phase"] == "failed"
    assert processes["router-0.0"]["phase"] == "exited"  # and nothing more was started
    bench.pdctl("down", "bench")
    assert bench.marked_pids() == []


def test_an_engine_that_exits_later_shows_in_status_and_the_next_up_brings_it_back(bench, wait_until):
    bench.pdctl("up", bench.topology())
    os.kill(bench.processes()["decode-0.0"]["pid"], signal.SIGUSR1)
    wait_until(lambda: bench.processes()["decode-0.0"]["phase"] == "failed", "decode failed")
    prefill = bench.processes()["prefill-0.0"]["pid"]
    status = bench.pdctl("status", "bench")
    assert "failed" in status.out
    assert "exit code 3" in status.out
    assert bench.pdctl("up", "t.yaml").code == 0
    assert bench.processes()["prefill-0.0"]["pid"] == prefill
    bench.pdctl("down", "bench")


def test_an_engine_that_never_gets_ready_is_given_up_at_the_deadline_and_left_running(bench):
    began = time.monotonic()
    up = bench.pdctl("up", bench.topology(prefill=NEVER_READY, health="ready_deadline_s: 3"))
    assert up.code == 1
    assert time.monotonic() - began >= 3
    assert "error[PD603]: `prefill-0.0` was not ready within 3 s" in up.err
    assert "its last probe saw: HTTP 503" in up.err
    assert len(bench.marked_pids()) >= 2
    bench.pdctl("down", "bench")
    assert bench.marked_pids() == []


def test_a_deployment_that_is_up_but_answers_wrong_fails_its_canary(bench):
    up = bench.pdctl("up", bench.topology(decode="env: {DUMMY_GENERATE_STATUS: '400'}"))
    assert up.code == 1
    assert "error[PD606]: the deployment is up, but a request through its router failed: HTTP 400" in up.err
    bench.pdctl("down", "bench")


# --- The operator -------------------------------------------------------------------------------------------


def test_one_ctrl_c_ends_up_in_good_order_and_the_next_up_goes_on(bench, wait_until):
    up = bench.begin("up", bench.topology(prefill=bench.ready_with("loaded")))
    wait_until(lambda: "started prefill-0.0" in bench.output(), "prefill started")
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 130
    assert "interrupted: still running: " in bench.output()
    before = {name: each["pid"] for name, each in bench.processes().items() if each["pid"]}
    assert before
    bench.show("loaded")
    assert bench.pdctl("up", "t.yaml").code == 0
    after = bench.processes()
    assert all(after[name]["pid"] == pid for name, pid in before.items())
    bench.pdctl("down", "bench")


def test_a_second_ctrl_c_ends_pdctl_at_once(bench, wait_until):
    up = bench.begin("up", bench.topology(prefill=NEVER_READY))
    wait_until(lambda: "started prefill-0.0" in bench.output(), "prefill started")
    up.send_signal(signal.SIGINT)
    up.send_signal(signal.SIGINT)
    assert up.wait(60) in (130, -signal.SIGINT)
    assert "Traceback" not in bench.output()
    assert bench.pdctl("down", "bench").code == 0
    assert bench.marked_pids() == []


def test_an_operator_killed_in_the_middle_of_up_leaves_a_lock_that_the_next_one_takes_over(bench, wait_until):
    up = bench.begin("up", bench.topology(prefill=bench.ready_with("loaded")))
    wait_until(lambda: "started prefill-0.0" in bench.output(), "prefill started")
    up.kill()
    up.wait()
    bench.show("loaded")
    again = bench.pdctl("up", "t.yaml")
    assert again.code == 0, again.err
    assert f"(pid {up.pid})" in again.err  # whose lock was taken over
    assert {each["phase"] for each in bench.processes().values()} == {"ready"}
    bench.pdctl("down", "bench")
    assert bench.marked_pids() == []


def test_killed_at_a_random_moment_of_up_a_down_cleans_everything(bench, wait_until):
    choose = random.Random(7)
    bench.topology()
    for _ in range(6):
        up = bench.begin("up", "t.yaml")
        time.sleep(choose.uniform(0.05, 2.5))
        up.kill()
        up.wait()
        down = bench.pdctl("down", "t.yaml")
        assert down.code in (0, 1), down.err
        assert down.code == 0 or "PD608" in down.err, down.err  # killed before it had done anything
        # A call to the node that `up` had under way may outlive both for a moment.
        wait_until(lambda: not bench.marked_pids(), "nothing is left")


def test_the_second_of_two_operators_is_told_who_is_at_work(bench, wait_until):
    first = bench.begin("up", bench.topology(prefill=bench.ready_with("loaded")))
    wait_until(lambda: "started prefill-0.0" in bench.output(), "prefill started")
    second = bench.pdctl("up", "t.yaml")
    assert second.code == 1
    assert "error[PD607]: `bench` is being changed by " in second.err
    assert "with `up` since" in second.err
    assert f"(pid {first.pid})" in second.err
    assert bench.pdctl("down", "bench").code == 1
    bench.show("loaded")
    assert first.wait(60) == 0
    assert bench.pdctl("down", "bench").code == 0


# --- Processes that do not go -------------------------------------------------------------------------------


def test_a_process_that_ignores_term_is_killed_after_its_grace(bench):
    bench.pdctl("up", bench.topology(decode="env: {DUMMY_IGNORE_TERM: '1'}"))
    down = bench.pdctl("down", "bench")
    assert down.code == 0, down.err
    assert "killed" in down.err
    assert bench.marked_pids() == []


def test_a_grandchild_in_a_session_of_its_own_goes_too(bench):
    bench.pdctl("up", bench.topology(prefill="env: {DUMMY_DETACHED_CHILD: '1'}"))
    assert bench.pdctl("down", "bench").code == 0
    assert bench.marked_pids() == []


def test_a_run_directory_deleted_under_its_process_is_noticed_and_taken_down(bench):
    bench.pdctl("up", bench.topology())
    shutil.rmtree(bench.folder / "state" / "run" / "bench")
    diff = bench.pdctl("diff", "t.yaml")
    assert "its run directory is gone" in diff.out
    down = bench.pdctl("down", "bench")
    assert down.code == 0, down.err
    assert bench.marked_pids() == []


def test_a_truncated_status_file_does_not_hide_its_process(bench):
    bench.pdctl("up", bench.topology())
    for path in (bench.folder / "state" / "run" / "bench").rglob("status.json"):
        path.write_bytes(path.read_bytes()[:10])
    assert bench.pdctl("status", "bench").code == 0
    assert bench.pdctl("down", "bench").code == 0
    assert bench.marked_pids() == []


def test_an_engine_killed_from_outside_is_told_with_its_signal(bench, wait_until):
    bench.pdctl("up", bench.topology())
    os.kill(bench.processes()["decode-0.0"]["pid"], signal.SIGKILL)
    wait_until(lambda: bench.processes()["decode-0.0"]["phase"] == "failed", "decode failed")
    assert "decode-0.0 on localhost: ended by signal 9 (SIGKILL)" in bench.pdctl("diff", "t.yaml").out
    assert bench.pdctl("up", "t.yaml").code == 0
    bench.pdctl("down", "bench")


# --- The operator's own machine -----------------------------------------------------------------------------


def test_a_state_directory_that_can_not_be_written_is_a_diagnostic(bench):
    up = bench.pdctl("up", bench.topology(), PDCTL_STATE_DIR="/proc/nowhere")
    assert up.code == 1
    assert "error[PD501]" in up.err or "error[PD506]" in up.err
    assert "Traceback" not in up.err
    assert bench.marked_pids() == []


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of half a MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=512k", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Write until the disk is full."""
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 512)


def test_a_full_disk_is_a_diagnostic_and_leaves_nothing_running(bench, tiny_disk):
    (tiny_disk / "filler").write_bytes(b"x" * 496 * 1024)
    up = bench.pdctl("up", bench.topology(), PDCTL_STATE_DIR=str(tiny_disk / "state"))
    assert up.code == 1
    assert "No space left on device" in up.err
    assert "Traceback" not in up.err
    assert bench.marked_pids() == []


def test_a_deployment_can_be_taken_down_on_a_full_disk(bench, tiny_disk):
    state = str(tiny_disk / "state")
    assert bench.pdctl("up", bench.topology(), "--skip-doctor", PDCTL_STATE_DIR=state).code == 0
    fill(tiny_disk / "filler")
    bench.pdctl("down", "bench", PDCTL_STATE_DIR=state)
    assert bench.marked_pids() == []


def test_a_refused_up_leaves_the_plan_in_force(bench):
    bench.pdctl("up", bench.topology())
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = stranger.getsockname()[1]
        refused = bench.pdctl("up", "t.yaml", "--set", f"decode.port={taken}")
    assert refused.code == 1
    assert [claim["port"] for claim in bench.processes()["decode-0.0"]["ports"]] == [bench.ports["decode"]]
    assert bench.pdctl("restart", "decode-0").code == 0
    bench.pdctl("down", "bench")


def test_an_engine_that_fails_to_join_leaves_the_endpoint_serving(bench):
    bench.pdctl("up", bench.topology())
    router = bench.processes()["router-0.0"]["pid"]
    assert bench.pdctl("up", bench.topology(decode=f"instances: 2, {DOOMED}")).code == 1
    assert bench.processes()["router-0.0"]["pid"] == router
    bench.pdctl("down", "bench")
