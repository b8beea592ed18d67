"""A deployment in a job: brought up, changed, looked at and ended, in each of the ways there are."""

from __future__ import annotations

import signal
import sys

PROCESSES = {"prefill-0.0", "decode-0.0", "router-0.0"}


def test_a_deployment_is_served_by_a_job_until_it_is_taken_down(desk, wait_until):
    topology = desk.topology()
    up = desk.pdctl("up", topology)
    (job_id,) = desk.slurm.jobs()
    assert f"submitted job {job_id}" in up.err
    assert f"job {job_id} has its nodes: node[1-2]" in up.err
    assert "3 created" in up.err
    assert desk.states() == dict.fromkeys(PROCESSES, "ready")

    # Again: nothing to do. Then a change, which the job itself makes.
    assert "nothing to do" in desk.pdctl("up", topology).err
    assert "nothing to do" in desk.pdctl("diff", topology).out
    desk.topology(decode='env: {A: "1"}')
    assert "1 replaced, 2 kept" in desk.pdctl("up", topology).err
    assert "1 replaced" in desk.pdctl("restart", "decode-0").err
    assert "dummy engine on" in desk.pdctl("logs", "decode-0").out

    # Another operator, who has no record of it, finds it by its topology.
    found = desk.pdctl("status", topology, "--json", PDCTL_STATE_DIR=str(desk.folder / "other"))
    assert found.json["deployments"][0]["phase"] == "ready"

    down = desk.pdctl("down", "desk")
    assert "stopped 3 processes" in down.out
    assert desk.slurm.job_state(job_id) == "COMPLETED"
    assert desk.marked_pids() == []
    assert not desk.home().exists()
    verbs = [act["entry"]["verb"] for act in desk.pdctl("history", "desk", "--json").json["acts"]]
    assert verbs == ["up", "up", "up", "restart", "down"]


def test_a_job_that_waits_is_told_about_and_ctrl_c_leaves_none(desk, wait_until):
    for node in desk.slurm.nodes:
        desk.slurm.drain(node)
    up = desk.begin("up", desk.topology())
    wait_until(lambda: "waits for nodes" in desk.output(), "the job waits")
    up.send_signal(signal.SIGINT)
    assert up.wait(60) == 130
    assert "nothing of desk runs" in desk.output()
    assert desk.slurm.jobs() == {}
    assert not desk.home().exists()
    assert desk.pdctl("status", "--json").json == {"deployments": []}


def test_the_job_runs_what_was_submitted_whatever_becomes_of_the_file(desk, wait_until):
    for node in desk.slurm.nodes:
        desk.slurm.drain(node)
    topology = desk.topology(decode='env: {A: "submitted"}')
    up = desk.begin("up", topology)
    wait_until(lambda: "waits for nodes" in desk.output(), "the job waits")
    (desk.folder / topology).write_text("no topology any more")
    for node in desk.slurm.nodes:
        desk.slurm.resume(node)
    assert up.wait(90) == 0, desk.output()
    assert "1 keep" not in desk.output()
    desk.topology(decode='env: {A: "submitted"}')
    assert "nothing to do" in desk.pdctl("diff", topology).out


def test_nobody_needs_to_wait(desk, wait_until):
    up = desk.pdctl("up", desk.topology(), "--no-wait")
    assert "the job waits for its nodes" in up.err or "handed over" in up.err
    wait_until(lambda: desk.job_record()["state"] == "serving", "the deployment serves")
    assert desk.states() == dict.fromkeys(PROCESSES, "ready")


def test_in_a_users_own_batch_script_the_steward_is_the_job(desk, wait_until):
    desk.topology()
    job_id = desk.sbatch(desk.script(f"exec {sys.executable} -m pdctl up desk.yaml --foreground"))
    wait_until(lambda: desk.job_record()["state"] == "serving", "the deployment serves")
    assert desk.states() == dict.fromkeys(PROCESSES, "ready")
    assert desk.slurm.jobs() == {job_id: "RUNNING"}
    desk.slurm.command("scancel", "--batch", "--signal=TERM", str(job_id))
    assert desk.slurm.wait_for_job(job_id, "COMPLETED", "FAILED") == "COMPLETED"
    assert desk.exit_record()["cause"] == "cancelled"
    assert desk.marked_pids() == []


def test_a_users_own_batch_script_goes_on_beside_the_deployment(desk, wait_until):
    desk.topology()
    job_id = desk.sbatch(
        desk.script(
            "pdctl up desk.yaml || exit 1",
            "touch is-up; until [ -e go-on ]; do sleep 0.1; done",
            "pdctl down desk || exit 1",
            "touch is-down; until [ -e go-home ]; do sleep 0.1; done",
        )
    )
    log = desk.folder / "user.log"
    wait_until((desk.folder / "is-up").exists, "the script has brought it up")
    assert desk.states() == dict.fromkeys(PROCESSES, "ready"), log.read_text()
    (desk.folder / "go-on").touch()
    wait_until((desk.folder / "is-down").exists, "the script has taken it down")
    assert desk.slurm.jobs() == {job_id: "RUNNING"}
    (desk.folder / "go-home").touch()
    assert desk.slurm.wait_for_job(job_id, "COMPLETED", "FAILED") == "COMPLETED", log.read_text()
    assert not desk.home().exists()
