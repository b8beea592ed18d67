"""What becomes of a job in each state."""

from __future__ import annotations

import pytest

from pdctl.executors.slurm_job.states import FATES, Fate, fate_of, is_hopeless


@pytest.mark.parametrize(
    ("state", "fate"),
    [
        ("PENDING", Fate.PENDING),
        ("CONFIGURING", Fate.STARTING),
        ("RUNNING", Fate.RUNNING),
        ("SUSPENDED", Fate.SUSPENDED),
        ("COMPLETING", Fate.ENDING),
        ("COMPLETED", Fate.ENDED_WELL),
        ("CANCELLED by 1000", Fate.CANCELLED),
        ("CANCELLED+", Fate.CANCELLED),
        ("OUT_OF_MEMORY", Fate.FAILED),
        ("TIMEOUT", Fate.TIMED_OUT),
        ("PREEMPTED", Fate.PREEMPTED),
        ("NODE_FAIL", Fate.NODE_FAILED),
        ("REQUEUE_HOLD", Fate.HELD),
    ],
)
def test_each_state_has_its_fate(state, fate):
    assert fate_of(state) is fate


@pytest.mark.parametrize("state", ["TELEPORTING", "", "running-ish"])
def test_a_state_that_nobody_knows_is_unknown_and_not_over(state):
    assert fate_of(state) is Fate.UNKNOWN
    assert not fate_of(state).is_over


def test_a_pending_job_may_be_held_or_have_run_before():
    assert fate_of("PENDING", reason="JobHeldUser") is Fate.HELD
    assert fate_of("PENDING", reason="BeginTime", num_restarts=1) is Fate.REQUEUED
    assert fate_of("PENDING", reason="Resources") is Fate.PENDING
    assert all(fate_of("PENDING", num_restarts=number).waits for number in (0, 1))


def test_what_is_over_never_waits():
    over = {fate for fate in FATES.values() if fate.is_over}
    assert over == {
        Fate.ENDED_WELL,
        Fate.FAILED,
        Fate.CANCELLED,
        Fate.TIMED_OUT,
        Fate.PREEMPTED,
        Fate.NODE_FAILED,
    }
    assert not any(fate.waits for fate in over)


def test_some_reasons_to_wait_pass_and_others_never_do():
    assert is_hopeless("PartitionConfig")
    assert is_hopeless("BadConstraints")
    assert not is_hopeless("Resources")
    assert not is_hopeless("ReqNodeNotAvail,_UnavailableNodes:node1")
    assert not is_hopeless(None)
