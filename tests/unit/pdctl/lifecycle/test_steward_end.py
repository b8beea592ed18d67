"""What a signal to a job means, by what Slurm says of the job."""

from __future__ import annotations

import signal
from dataclasses import replace

import pytest

from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.states import Fate
from pdctl.lifecycle.steward_end import why_asked

NOW = 10_000.0
JOB = Job(
    id=7,
    name="pdctl-demo",
    user="ada",
    state="RUNNING",
    fate=Fate.RUNNING,
    started_at=NOW - 3000,
    limit_s=3600,
    ends_at=NOW + 600,
)


@pytest.mark.parametrize(
    ("job", "cause"),
    [
        (JOB, "cancelled"),
        (replace(JOB, started_at=NOW - 3540, ends_at=NOW + 60), "timeout"),
        (replace(JOB, started_at=NOW - 3650, ends_at=NOW - 50), "timeout"),
        (replace(JOB, ends_at=NOW + 20), "preempted"),
        (replace(JOB, fate=Fate.PREEMPTED), "preempted"),
        (replace(JOB, fate=Fate.CANCELLED, ends_at=NOW), "cancelled"),
        (replace(JOB, fate=Fate.ENDING, ends_at=NOW), "cancelled"),
        (replace(JOB, ends_at=None, limit_s=None), "cancelled"),
        (None, "cancelled"),
    ],
    ids=[
        "sent by hand",
        "shortly before the limit",
        "just after it",
        "the end was moved forward",
        "preempted",
        "cancelled",
        "being cancelled",
        "without a limit",
        "Slurm doesn't answer",
    ],
)
def test_term_means_what_slurm_does_to_the_job(job: Job | None, cause: str):
    end = why_asked(signal.SIGTERM, job, lead_s=60.0, now=NOW)
    assert (end.cause, end.code) == (cause, 0)


def test_a_longer_lead_is_taken_into_account():
    job = replace(JOB, ends_at=NOW + 600)
    assert why_asked(signal.SIGTERM, job, lead_s=600.0, now=NOW).cause == "timeout"


def test_ctrl_c_is_the_operators_own():
    end = why_asked(signal.SIGINT, replace(JOB, ends_at=NOW + 1), lead_s=60.0, now=NOW)
    assert (end.cause, end.code) == ("cancelled", 130)
