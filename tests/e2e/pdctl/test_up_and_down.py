"""The main verbs against real processes: a dummy engine behind the real mini load balancer."""

from __future__ import annotations

import json
import urllib.request

import pytest

pytestmark = pytest.mark.slow


def test_up_status_and_down_leave_no_process_no_port_and_no_file_but_the_record(bench):
    up = bench.pdctl("up", bench.topology())
    assert up.code == 0, up.err
    assert "verified" in up.err
    processes = bench.processes()
    assert {name: each["phase"] for name, each in processes.items()} == {
        "prefill-0.0": "ready",
        "decode-0.0": "ready",
        "router-0.0": "ready",
    }
    assert processes["prefill-0.0"]["num_requests"] == 1  # the canary
    assert processes["decode-0.0"]["pid"] in bench.marked_pids()
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.ports['router']}/health", timeout=30) as answer:
        assert answer.status == 200

    down = bench.pdctl("down", "bench")
    assert down.code == 0, down.err
    assert "bench: stopped 3 processes" in down.out
    assert bench.marked_pids() == []
    assert bench.state_files() == [
        "deployments/bench/audit.jsonl",
        "deployments/bench/plan-before-down.json",
    ]
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://127.0.0.1:{bench.ports['router']}/health", timeout=30)


def test_a_second_up_changes_nothing(bench):
    bench.pdctl("up", bench.topology())
    before = {name: each["pid"] for name, each in bench.processes().items()}
    assert bench.pdctl("plan", "t.yaml", "--exit-code").code == 0
    again = bench.pdctl("up", "t.yaml", "--json")
    assert again.code == 0
    assert [change["op"] for change in again.json["changes"]] == ["keep"] * 3
    assert {name: each["pid"] for name, each in bench.processes().items()} == before
    bench.pdctl("down", "bench")


def test_an_edit_replaces_just_what_it_changes(bench):
    bench.pdctl("up", bench.topology())
    before = {name: each["pid"] for name, each in bench.processes().items()}
    bench.topology(decode="args: {page-size: 32}")
    pending = bench.pdctl("diff", "t.yaml", "--exit-code")
    assert pending.code == 2
    assert "decode-0.0" in pending.out
    assert "`--page-size` unset -> 32" in pending.out
    assert bench.pdctl("up", "t.yaml").code == 0
    after = {name: each["pid"] for name, each in bench.processes().items()}
    assert [name for name in after if after[name] != before[name]] == ["decode-0.0"]
    bench.pdctl("down", "bench")


def test_an_instance_that_left_the_topology_is_stopped(bench):
    bench.pdctl("up", bench.topology(decode="instances: 2"))
    assert len(bench.processes()) == 4
    assert bench.pdctl("up", bench.topology()).code == 0
    assert list(bench.processes()) == ["prefill-0.0", "decode-0.0", "router-0.0"]
    bench.pdctl("down", "bench")
    assert bench.marked_pids() == []


def test_restart_replaces_one_instance_and_proves_that_it_serves(bench):
    bench.pdctl("up", bench.topology())
    before = {name: each["pid"] for name, each in bench.processes().items()}
    restarted = bench.pdctl("restart", "decode-0")
    assert restarted.code == 0, restarted.err
    after = {name: each["pid"] for name, each in bench.processes().items()}
    assert [name for name in after if after[name] != before[name]] == ["decode-0.0"]
    bench.pdctl("down", "bench")


def test_restart_of_an_unknown_instance_names_the_nearest(bench):
    bench.pdctl("up", bench.topology())
    wrong = bench.pdctl("restart", "decode-1")
    assert wrong.code == 1
    assert "error[PD609]: `bench` has no instance or process `decode-1`" in wrong.err
    assert "did you mean `decode-0" in wrong.err
    bench.pdctl("down", "bench")


def test_logs_of_several_processes_are_merged_with_their_names(bench):
    bench.pdctl("up", bench.topology())
    logs = bench.pdctl("logs", "prefill-0", "decode-0")
    assert logs.code == 0
    lines = logs.out.splitlines()
    assert any(line.startswith("prefill-0.0") and "dummy engine on" in line for line in lines)
    assert any(line.startswith("decode-0.0") and "dummy engine on" in line for line in lines)
    assert not any("router-0.0" in line for line in lines)
    bench.pdctl("down", "bench")


def test_logs_follow_a_process_into_its_next_run(bench, wait_until):
    bench.pdctl("up", bench.topology())
    follower = bench.begin("logs", "decode-0", "--follow")
    wait_until(lambda: bench.output().count("dummy engine on") == 1, "the first run's line")
    bench.pdctl("restart", "decode-0")
    wait_until(lambda: bench.output().count("dummy engine on") == 2, "the second run's line")
    follower.send_signal(2)
    assert follower.wait(60) in (0, 130)
    bench.pdctl("down", "bench")


def test_down_of_something_never_started_says_so(bench):
    down = bench.pdctl("down", "bench")
    assert down.code == 1
    assert "error[PD608]: no deployment `bench` is known" in down.err


def test_down_twice_is_no_fault(bench):
    bench.pdctl("up", bench.topology())
    assert bench.pdctl("down", "t.yaml").code == 0
    again = bench.pdctl("down", "bench")
    assert again.code == 0
    assert "nothing was running" in again.out


def test_down_purge_forgets_the_record_too(bench):
    bench.pdctl("up", bench.topology())
    assert bench.pdctl("down", "bench", "--purge").code == 0
    assert bench.state_files() == []
    assert bench.pdctl("status", "bench").code == 1


def test_losing_the_operators_record_loses_nothing(bench):
    bench.pdctl("up", bench.topology())
    for name in bench.state_files():
        if name.startswith("deployments/"):
            (bench.folder / "state" / name).unlink()
    assert {each["phase"] for each in bench.processes().values()} == {"ready"}
    assert bench.pdctl("restart", "decode-0").code == 0
    assert bench.pdctl("down", "bench").code == 0
    assert bench.marked_pids() == []


def test_up_without_wait_returns_while_the_engines_still_load(bench, wait_until):
    up = bench.pdctl("up", bench.topology(prefill=bench.ready_with("loaded")), "--no-wait")
    assert up.code == 0
    assert bench.processes()["prefill-0.0"]["phase"] == "starting"
    bench.show("loaded")
    wait_until(lambda: bench.processes()["prefill-0.0"]["phase"] == "ready", "prefill ready")
    bench.pdctl("down", "bench")


def test_plan_prints_the_contract_and_starts_nothing(bench):
    plan = bench.pdctl("plan", bench.topology(), "--json").json
    assert [process["id"] for process in plan["processes"]] == ["prefill-0.0", "decode-0.0", "router-0.0"]
    assert plan["processes"][0]["ports"] == {
        "http": bench.ports["prefill"],
        "bootstrap": bench.ports["bootstrap"],
    }
    assert bench.marked_pids() == []
    assert bench.state_files() == []


def test_every_change_leaves_a_line_in_the_audit_log(bench):
    bench.pdctl("up", bench.topology())
    bench.pdctl("down", "bench")
    lines = (bench.folder / "state/deployments/bench/audit.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [(entry["verb"], entry["outcome"]) for entry in entries] == [("up", "done"), ("down", "done")]
    assert entries[0]["changes"] == ["create prefill-0.0,decode-0.0,router-0.0"]
    assert entries[0]["detail"] is None
