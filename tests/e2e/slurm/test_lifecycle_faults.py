"""What a cluster does to jobs, while a deployment serves in one."""

from __future__ import annotations

import os
import signal


def test_a_deployment_that_cannot_come_up_ends_its_job(desk):
    topology = desk.topology(decode="env: {DUMMY_EXIT_AFTER_S: '0'}")
    ran = desk.pdctl("up", topology, code=1)
    assert "`decode-0.0` exited with code 3" in ran.err
    assert "no luck today" in ran.err  # its last words
    (job_id,) = {1, *desk.slurm.jobs()}
    assert desk.slurm.wait_for_job(job_id, "FAILED", "COMPLETED") == "FAILED"
    assert desk.exit_record()["cause"] == "failed"
    assert desk.marked_pids() == []
    told = desk.pdctl("status", "desk").out
    assert "failed" in told
    # The next one starts afresh.
    desk.topology()
    desk.pdctl("up", topology)
    assert set(desk.states().values()) == {"ready"}


def test_it_stays_to_be_mended_where_the_topology_says_so(desk, wait_until):
    topology = desk.topology(slurm="keep_on_failure: true", decode="env: {DUMMY_EXIT_AFTER_S: '0'}")
    desk.pdctl("up", topology, code=1)
    wait_until(lambda: desk.job_record()["state"] == "idle", "the job stays")
    desk.topology(slurm="keep_on_failure: true")
    desk.pdctl("up", topology)
    assert len(desk.slurm.jobs()) == 1
    assert set(desk.states().values()) == {"ready"}


def test_a_job_that_is_cancelled_by_hand_is_noticed_and_cleaned(desk):
    desk.pdctl("up", desk.topology())
    (job_id,) = desk.slurm.jobs()
    desk.slurm.command("scancel", str(job_id))
    desk.slurm.wait_for_job(job_id, "CANCELLED")
    told = desk.pdctl("status", "desk").out
    assert f"job {job_id}" in told
    assert "cancelled" in told
    down = desk.pdctl("down", "desk")
    assert "nothing was running" in down.out
    assert not desk.home().exists()
    assert desk.marked_pids() == []
    assert f"job {job_id} ended" in desk.pdctl("history", "desk").out


def test_before_its_time_limit_a_job_ends_its_deployment_in_good_order(desk):
    desk.pdctl("up", desk.topology(slurm="time_limit: '5:00'"))
    (job_id,) = desk.slurm.jobs()
    # The limit is now nearer than the time that ending takes: Slurm tells the job when it looks next.
    desk.slurm.command("scontrol", "update", f"jobid={job_id}", "timelimit=1")
    assert desk.slurm.wait_for_job(job_id, "COMPLETED", "TIMEOUT", "FAILED") == "COMPLETED"
    record = desk.exit_record()
    assert record["cause"] == "timeout"
    assert set(record["processes"].values()) == {0}
    assert "time limit" in desk.pdctl("status", "desk").out
    assert desk.marked_pids() == []


def test_a_requeued_job_comes_back_on_its_new_nodes(desk, wait_until):
    desk.pdctl("up", desk.topology())
    (job_id,) = desk.slurm.jobs()
    old = set(desk.marked_pids())
    desk.slurm.drain("node1")
    desk.slurm.command("scontrol", "requeue", str(job_id))
    wait_until(
        lambda: desk.job_record()["generation"] == 1 and desk.job_record()["state"] == "serving",
        "the deployment serves again",
    )
    assert "node1" not in desk.job_record()["hosts"]
    assert set(desk.states().values()) == {"ready"}
    assert old.isdisjoint(desk.marked_pids())


def test_a_node_that_fails_takes_only_its_instances_along(desk, wait_until):
    desk.pdctl("up", desk.topology(nodes=3))
    (job_id,) = desk.slurm.jobs()
    desk.slurm.lose("node3")
    wait_until(lambda: desk.job_record()["state"] == "degraded", "the loss is noticed")
    states = desk.states()
    assert states["decode-1.0"] == "lost"
    assert {states["prefill-0.0"], states["decode-0.0"], states["router-0.0"]} == {"ready"}
    assert desk.slurm.jobs() == {job_id: "RUNNING"}
    # The next job does without it, as long as nobody forgets the evidence.
    bad = desk.pdctl("nodes", "list", "-t", "desk.yaml").out
    assert "node3" in bad
    desk.pdctl("down", "desk")
    assert desk.marked_pids() == []
    desk.slurm.start_slurmd("node3")
    desk.slurm.resume("node3")
    desk.pdctl("up", desk.topology(nodes=3))
    assert "node3" not in desk.job_record()["hosts"]


def test_the_last_decode_instance_is_not_to_be_missed(desk, wait_until):
    desk.pdctl("up", desk.topology())
    (job_id,) = desk.slurm.jobs()
    (pid,) = [process["pid"] for process in desk.processes() if process["id"] == "decode-0.0"]
    os.kill(pid, signal.SIGKILL)
    assert desk.slurm.wait_for_job(job_id, "FAILED", "COMPLETED") == "FAILED"
    assert "decode-0.0" in str(desk.exit_record()["reason"])
    assert desk.marked_pids() == []


def test_slurmd_that_restarts_disturbs_nothing(desk):
    desk.pdctl("up", desk.topology())
    desk.slurm.kill_slurmd("node2")
    desk.slurm.start_slurmd("node2")
    assert set(desk.states().values()) == {"ready"}
    assert "nothing to do" in desk.pdctl("up", "desk.yaml").err
    desk.pdctl("down", "desk")
    assert desk.marked_pids() == []


def test_a_controller_that_is_away_is_no_end(desk, wait_until):
    desk.pdctl("up", desk.topology(slurm="command_timeout_s: 3"))
    desk.slurm.stop_controller()
    told = desk.pdctl("status", "desk").out
    assert "doesn't answer" in told
    assert "exited" not in told
    assert len(desk.marked_pids()) > 0
    desk.slurm.continue_controller()
    wait_until(lambda: set(desk.states().values()) == {"ready"}, "the controller answers again")


def test_two_deployments_share_an_allocation(desk, wait_until):
    for name, port in (("one", 8000), ("two", 8100)):
        desk.topology(name=name)
        text = (desk.folder / f"{name}.yaml").read_text()
        ports = text.replace(
            "prefill: {",
            f"router: {{port: {port}}}\nprefill: {{port: {port + 1}, bootstrap_port: {port + 2}, ",
        )
        (desk.folder / f"{name}.yaml").write_text(
            ports.replace("nodes: 1, }", f"nodes: 1, port: {port + 3}}}")
        )
    desk.topology(name="clash")
    clash = (desk.folder / "two.yaml").read_text().replace("name: two", "name: clash")
    (desk.folder / "clash.yaml").write_text(clash)
    job_id = desk.sbatch(
        desk.script(
            "pdctl up one.yaml || exit 1",
            "pdctl up two.yaml || exit 1",
            "pdctl up clash.yaml && exit 1",
            "touch are-up; until [ -e go-home ]; do sleep 0.1; done",
        )
    )
    wait_until((desk.folder / "are-up").exists, "both are up")
    assert set(desk.states("one").values()) == {"ready"}
    assert set(desk.states("two").values()) == {"ready"}
    assert "PD410" in (desk.folder / "user.log").read_text()
    desk.pdctl("down", "one")
    assert set(desk.states("two").values()) == {"ready"}
    desk.pdctl("down", "two")
    assert desk.slurm.jobs() == {job_id: "RUNNING"}
    (desk.folder / "go-home").touch()
    assert desk.slurm.wait_for_job(job_id, "COMPLETED", "FAILED") == "COMPLETED"
    assert desk.marked_pids() == []


def test_a_job_that_is_preempted_says_so_and_comes_back(desk, wait_until):
    desk.pdctl("up", desk.topology(nodes=8))
    (job_id,) = desk.slurm.jobs()
    urgent = desk.script("sleep 1", name="urgent.sh", options="--partition=urgent", nodes=8)
    desk.sbatch(urgent)
    wait_until(lambda: desk.job_record()["state"] == "ended", "all is stopped")
    assert desk.exit_record()["cause"] == "preempted"
    wait_until(lambda: desk.job_record()["generation"] == 1, "the job runs again")
    wait_until(lambda: desk.job_record()["state"] == "serving", "the deployment serves again")
    assert job_id in desk.slurm.jobs()


def test_a_step_that_cannot_start_is_told_with_slurms_words(desk, wait_until):
    desk.slurm.kill_slurmd("node2")
    ran = desk.pdctl("up", desk.topology(), code=1)
    assert "node2" in ran.err
    assert "step of job" in ran.err
    wait_until(lambda: desk.marked_pids() == [], "the steward ends")


def test_ctrl_c_leaves_what_has_its_nodes(desk, wait_until):
    up = desk.begin("up", desk.topology(decode='env: {DUMMY_READY_AFTER_S: "4"}'))
    wait_until(lambda: "started decode-0.0" in desk.output(), "engines start")
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 130
    assert "still running: " in desk.output()
    wait_until(lambda: desk.job_record()["state"] == "serving", "the job goes on by itself")
    assert set(desk.states().values()) == {"ready"}


def test_a_steward_that_is_killed_in_a_users_job_is_replaced_by_the_next(desk, wait_until):
    desk.topology()
    job_id = desk.sbatch(
        desk.script(
            "pdctl up desk.yaml || exit 1",
            "touch is-up; until [ -e again ]; do sleep 0.1; done",
            "pdctl up desk.yaml || exit 1",
            "touch is-up-again; until [ -e go-home ]; do sleep 0.1; done",
        )
    )
    wait_until((desk.folder / "is-up").exists, "it is up")
    engines = {each["id"]: each["pid"] for each in desk.processes()}
    os.kill(desk.job_record()["steward"]["pid"], signal.SIGKILL)
    told = desk.pdctl("status", "desk").out
    assert "is gone" in told
    (desk.folder / "again").touch()
    wait_until((desk.folder / "is-up-again").exists, "a new steward works")
    assert {each["id"]: each["pid"] for each in desk.processes()} == engines
    desk.pdctl("down", "desk")
    assert desk.slurm.jobs() == {job_id: "RUNNING"}
    assert not desk.home().exists()
