"""The command line of a step, and what `srun` means by its words."""

from __future__ import annotations

import pytest

from pdctl.executors.slurm_job.container import container_options, in_container
from pdctl.executors.slurm_job.srun import (
    JobGoneError,
    StepPlace,
    step_argv,
    step_environ,
    step_fault,
    too_slow,
)
from pdctl.topology.slurm import Container

PLACE = StepPlace(job_id=47, node="gpu07", srun_args=("--nice=10",), environ={})
HOLD = ("python3", "-I", "-S", "/home/a/run/47.0/shim.py", "hold", "/home/a/run/47.0", "demo", "decode-0.0")


def _golden(argv: list[str]) -> str:
    return "\n".join(argv) + "\n"


def test_a_step_is_one_task_beside_all_others_on_its_node(golden):
    golden("cases/slurm-step.txt", _golden(step_argv(PLACE, "decode-0.0", HOLD)))


def test_a_component_of_a_heterogeneous_job_is_named():
    argv = step_argv(StepPlace(job_id=47, node="gpu07", het_group=1, environ={}), "decode-0.0", ["true"])
    assert argv[1:4] == ["--jobid=47", "--het-group=1", "--nodelist=gpu07"]


@pytest.mark.parametrize("runtime", ["pyxis", "apptainer"])
def test_a_container_is_around_the_shim_and_has_its_run_directories(golden, runtime):
    image = {"pyxis": "nvcr.io#sglang:0.5.23", "apptainer": "/images/sglang.sif"}[runtime]
    container = Container(runtime=runtime, image=image, mounts=("/models:/models:ro",))
    root = "/home/a/run/47.0"
    place = PLACE.with_options(container_options(container, root))
    argv = step_argv(place, "decode-0.0", in_container(container, root, HOLD))
    golden(f"cases/slurm-step-{runtime}.txt", _golden(argv))


def test_without_a_container_a_step_is_as_it_is():
    assert container_options(None, "/r") == ()
    assert in_container(None, "/r", HOLD) == HOLD


def test_what_slurm_gave_to_the_script_around_us_is_no_option_of_a_step():
    environ = {
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_JOB_ID": "1",
        "SLURM_NTASKS": "104",
        "SLURM_EXPORT_ENV": "NONE",
        "SLURMD_NODENAME": "gpu01",
        "HOME": "/home/a",
        "CUDA_VISIBLE_DEVICES": "0",
    }
    assert set(step_environ(environ)) == {"SLURM_CONF", "HOME", "CUDA_VISIBLE_DEVICES"}


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        (
            "srun: error: Unable to confirm allocation for job 47: Invalid job id specified\n"
            "srun: Check SLURM_JOB_ID environment variable. Expired or invalid job 47\n",
            "PD538",
            "job 47 has ended",
        ),
        ("srun: error: Slurm job 47 has expired\n", "PD538", "job 47 has ended"),
        (
            "srun: error: Unable to create step for job 47: Job/step already completing or completed\n",
            "PD538",
            "job 47 has ended",
        ),
        (
            "srun: error: Unable to confirm allocation for job 47: Unable to contact slurm controller "
            "(connect failure)\n",
            "PD533",
            "Slurm's controller doesn't answer",
        ),
        (
            "srun: error: Unable to create step for job 47: Requested node configuration is not available\n",
            "PD539",
            "a step of job 47 did not start: Unable to create step for job 47: "
            "Requested node configuration is not available",
        ),
        (
            "srun: error: cluster: task 0: Exited with exit code 2\n"
            "slurmstepd-gpu07: error: execve(): /no/python: No such file or directory\n",
            "PD539",
            "a step of job 47 did not start: execve(): /no/python: No such file or directory",
        ),
        (
            "srun: cluster configuration lacks support for cpu binding\n",
            "PD539",
            "`srun` ended without a word",
        ),
        ("", "PD539", "a step of job 47 did not start: `srun` ended without a word"),
    ],
)
def test_srun_says_why_there_is_no_step(said, code, reason):
    fault = step_fault(said, job_id=47)
    assert fault.code == code
    assert str(fault).endswith(reason)
    assert isinstance(fault, JobGoneError) == (code == "PD538")


def test_a_step_that_ran_has_ended_rather_than_not_started():
    fault = step_fault("srun: error: Node failure on gpu07\n", job_id=47, has_begun=True)
    assert str(fault) == "a step of job 47 ended: Node failure on gpu07"


def test_a_step_that_waits_too_long_says_what_it_waits_for():
    said = "srun: Job 47 step creation temporarily disabled, retrying (Requested nodes are busy)\n"
    fault = too_slow(47, 30, said)
    assert str(fault) == "a step of job 47 did not start within 30 s"
    assert fault.notes == ("Job 47 step creation temporarily disabled, retrying (Requested nodes are busy)",)
