"""One job of each submission, when answers are lost in ways that a real controller can't be made to show."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from pdctl.executors.slurm_job.faults import SlurmSilentError, refused, silent
from pdctl.executors.slurm_job.job import Job
from pdctl.executors.slurm_job.request import JobRequest
from pdctl.executors.slurm_job.states import Fate
from pdctl.executors.slurm_job.submission import PATIENCE_S, SETTLE_S, Submission

REQUEST = JobRequest(job_name="pdctl-demo", comment="token", groups=((),))


@dataclass
class Clock:
    seconds: float = 0.0

    def now(self) -> float:
        return self.seconds

    def wall(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds


@dataclass
class Slurm:
    """Has jobs as (id, comment) from a time on, and is silent in between two times."""

    clock: Clock
    jobs: list[tuple[float, int, str]] = field(default_factory=list)
    silence: tuple[float, float] = (0.0, 0.0)
    cancelled: list[int] = field(default_factory=list)

    def find(self, job_name: str) -> tuple[Job, ...]:
        if not self.ping():
            raise silent("squeue", "")
        return tuple(
            Job(id=job_id, name=job_name, user="ada", state="PENDING", fate=Fate.PENDING, comment=comment)
            for since, job_id, comment in self.jobs
            if self.clock.now() >= since
        )

    def ping(self) -> bool:
        begin, end = self.silence
        return not begin <= self.clock.now() < end

    def cancel(self, job_id: int) -> None:
        self.cancelled.append(job_id)


@pytest.fixture
def slurm() -> Slurm:
    return Slurm(clock=Clock())


def submit(slurm: Slurm, *answers: int | Exception | Callable[[], int]) -> int:
    """Each try gets the next of the answers; an error takes ten seconds to come."""
    left = list(answers)

    def once() -> int:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            slurm.clock.sleep(10)
            raise answer
        return answer if isinstance(answer, int) else answer()

    return Submission(commands=slurm, request=REQUEST, clock=slurm.clock).carry_out(once)


def test_a_job_that_appears_after_the_silence_is_the_one(slurm):
    slurm.silence, slurm.jobs = (1, 60), [(61, 7, "token")]
    assert submit(slurm, silent("sbatch", "")) == 7


def test_a_job_is_known_by_its_name_where_a_site_writes_comments_of_its_own(slurm):
    slurm.jobs = [(0, 3, "earlier"), (10, 7, "project=x")]
    assert submit(slurm, silent("sbatch", "")) == 7


def test_an_earlier_job_of_the_name_is_never_taken_for_the_new_one(slurm):
    slurm.jobs = [(0, 3, "earlier")]
    assert submit(slurm, silent("sbatch", ""), 8) == 8
    assert slurm.clock.now() >= SETTLE_S
    assert slurm.cancelled == []


def test_of_two_jobs_one_is_left_when_an_unanswered_request_comes_through_late(slurm):
    slurm.jobs = [(0, 3, "earlier")]

    def again() -> int:
        slurm.jobs += [(0, 7, "token"), (0, 9, "token")]  # the first request, and this one
        return 9

    assert submit(slurm, silent("sbatch", ""), again) == 9
    assert slurm.cancelled == [7]


@pytest.mark.parametrize(
    "silence",
    [(1.0, 10 * PATIENCE_S), (0.0, 0.0)],
    ids=["the controller stays away", "each try is swallowed"],
)
def test_what_stays_open_is_told_as_open(slurm, silence):
    slurm.silence = silence
    with pytest.raises(SlurmSilentError) as caught:
        submit(slurm, *(silent("sbatch", "") for _ in range(5)))
    assert caught.value.diagnostics[0].code == "PD535"


def test_a_refusal_is_no_silence(slurm):
    with pytest.raises(type(refused("sbatch", "no"))):
        submit(slurm, refused("sbatch", "no"))
