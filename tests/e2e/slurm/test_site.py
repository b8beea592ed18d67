"""What a cluster wants, refuses and remembers, between `pdctl up` and a real Slurm."""

from __future__ import annotations


def shown(desk, job_id: int) -> dict[str, str]:
    words = desk.slurm.command("scontrol", "-o", "show", "job", str(job_id)).split()
    return dict(word.split("=", 1) for word in words if "=" in word)


def submitted(desk, topology: str, **environ: str) -> dict[str, str]:
    desk.pdctl("up", topology, "--no-wait", **environ)
    return shown(desk, max(desk.slurm.jobs()))


def test_a_job_that_is_refused_is_told_at_its_place_and_leaves_nothing(desk):
    ran = desk.pdctl("up", desk.topology(slurm="partition: nowhere"), code=1)
    assert "error[PD532]: Slurm refuses the job: " in ran.err
    assert "Invalid partition name specified" in ran.err
    assert "--> " in ran.err
    assert "desk.yaml:9:" in ran.err
    assert desk.slurm.jobs() == {}
    assert not desk.home().exists()


def test_a_job_is_asked_for_as_the_site_wants_it(desk):
    site = desk.folder / "site.yaml"
    site.write_text(
        "schema: pdctl-site/v1\ndefaults: {partition: urgent, time_limit: 30}\n"
        "gpus: gres\ngpu_type: h100\nrefuses: [segment]\n"
    )
    job = submitted(desk, desk.topology(), PDCTL_SITE=str(site))
    assert (job["Partition"], job["TimeLimit"]) == ("urgent", "00:30:00")
    assert job["TresPerNode"] == "gres:gpu:h100:8"
    ran = desk.pdctl("validate", desk.topology(slurm="segment: 2"), code=1, PDCTL_SITE=str(site))
    assert "error[PD531]: this site refuses `segment`" in ran.err


def test_a_bad_node_is_left_out_until_it_is_forgotten(desk):
    topology = desk.topology()
    desk.pdctl("nodes", "add", "node1", "node3", "--why", "link errors", "-t", topology)
    ran = desk.pdctl("up", topology, "--no-wait")
    assert "without node[1,3], see `pdctl nodes list`" in ran.out + ran.err
    job = shown(desk, max(desk.slurm.jobs()))
    assert job["ExcNodeList"] == "node[1,3]"
    desk.pdctl("nodes", "forget", "node1", "node3", "-t", topology)
    assert submitted(desk, desk.topology(name="other"))["ExcNodeList"] == "(null)"
