"""How the end of a job is told: by the steward's own record, else by Slurm, else as unknown."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from pdctl.executors.slurm_job.home import ExitRecord, JobRecord
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.states import Fate
from pdctl.executors.slurm_job.whereabouts import how_it_ended, is_same
from pdctl.state.lock import this_owner

AT = 1_796_000_000.0
WHEN = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(AT))
RECORD = JobRecord(job_id=7)
JOB = Job(id=7, name="pdctl-demo", user="ada", state="TIMEOUT", fate=Fate.TIMED_OUT, ends_at=AT)
EXIT = ExitRecord(
    job_id=7, generation=0, cause="timeout", reason="its job reached its time limit", at=AT, code=0
)


def test_the_steward_knows_best():
    told = how_it_ended(RECORD, replace(JOB, fate=Fate.ENDED_WELL), EXIT)
    assert told == f"job 7 ended at {WHEN}: its job reached its time limit"


def test_slurm_tells_of_a_steward_that_was_killed():
    assert how_it_ended(RECORD, JOB, None) == f"job 7 ended at {WHEN}: it reached its time limit"


def test_the_record_of_an_earlier_job_tells_nothing():
    told = how_it_ended(RECORD, JOB, replace(EXIT, job_id=6, reason="it was taken down"))
    assert "taken down" not in told


def test_a_job_that_slurm_has_forgotten_is_over_all_the_same():
    assert "neither Slurm nor the job itself" in how_it_ended(RECORD, None, None)


@pytest.mark.parametrize("fate", [fate for fate in Fate if fate.is_over])
def test_every_end_that_slurm_knows_has_words(fate: Fate):
    assert "has a record" not in how_it_ended(RECORD, replace(JOB, fate=fate), None)


def test_one_process_has_a_token_for_each_act():
    first, second = this_owner("up"), this_owner("down")
    assert first.token != second.token
    assert is_same(first, second)
    assert not is_same(first, replace(second, start_ticks=second.start_ticks + 1))
