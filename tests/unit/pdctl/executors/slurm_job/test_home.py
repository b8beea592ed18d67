"""The shared folder's records survive a trip through their files, and damage is no crash."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.executors.slurm_job.home import ExitRecord, Home, JobRecord, Tenure, home_of
from pdctl.state.lock import this_owner

JOB = JobRecord(job_id=4711, generation=2, state=Tenure.SERVING, beat=7, hosts=("n1", "n2"))
EXIT = ExitRecord(
    job_id=4711,
    generation=0,
    cause="timeout",
    reason="ended: the time limit was reached",
    at=1.5,
    code=1,
    processes={"prefill-0.0": 0, "decode-0.0": None},
)


def test_the_job_is_read_as_it_was_written(home: Home):
    assert home.job() is None
    home.save_job(JOB)
    assert home.job() == JOB
    known = replace(JOB, steward=this_owner("up"), why="decode-1 is gone", owns_job=False)
    home.save_job(known)
    assert home.job() == known


def test_the_end_is_read_as_it_was_written_until_the_next_job(home: Home):
    home.save_exit(EXIT)
    assert home.exit() == EXIT
    home.forget_exit()
    assert home.exit() is None


@pytest.mark.parametrize("content", ["", "{", "[]", '{"job_id": "4711"}', '{"job_id": 1, "state": "odd"}'])
def test_a_damaged_record_is_none(home: Home, content: str):
    for name in ("job.json", "exit.json"):
        (home.path / name).write_text(content)
    assert home.job() is None
    assert home.exit() is None


def test_others_may_not_look_into_it(home: Home):
    folders = [home.path, home.steps, home.mailbox.requests, home.mailbox.events]
    assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o700}


def test_it_can_be_removed_twice(home: Home):
    home.remove()
    home.remove()
    assert not home.path.exists()


@pytest.mark.parametrize(
    ("run_dir", "job_name", "wanted"),
    [
        (None, None, "/state/slurm/pdctl-demo"),
        ("/scratch/serving", None, "/scratch/serving/pdctl-demo"),
        ("/scratch/serving", "llama", "/scratch/serving/llama"),
    ],
)
def test_it_lies_where_the_topology_says(run_dir: str | None, job_name: str | None, wanted: str):
    home = home_of("demo", run_dir=run_dir, job_name=job_name, environ={"PDCTL_STATE_DIR": "/state"})
    assert home.path == Path(wanted)


def test_each_generation_of_a_job_has_its_own_runs(home: Home):
    assert home.run_root(7, 0) != home.run_root(7, 1)
