"""Slurm's words about jobs and nodes, as Slurm 22.05 prints them and as later releases may."""

from __future__ import annotations

from datetime import datetime

from pdctl.executors.slurm_job.job import (
    SEPARATOR,
    job_from_accounting,
    jobs_from,
    nodes_from,
    rows,
)
from pdctl.executors.slurm_job.states import Fate

RUNNING = (
    "JobId=7 JobName=pdctl-demo UserId=ada(1000) GroupId=ada(1000) MCS_label=N/A Priority=4294901759 Nice=0"
    " Account=(null) QOS=(null) JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=2"
    " ExitCode=0:0 RunTime=00:00:01 TimeLimit=1-00:00:00 StartTime=2026-11-30T04:21:22"
    " EndTime=2026-12-01T04:21:22 Partition=main ReqNodeList=(null) ExcNodeList=(null) NodeList=node[1-2]"
    " BatchHost=node1 NumNodes=2 NumCPUs=2 WorkDir=/home/ada/my jobs Comment=tok JobState=FAILED Power="
)
PENDING = (
    "JobId=12 HetJobId=12 HetJobOffset=0 JobName=het UserId=ada(1000) JobState=PENDING Reason=Resources"
    " Restarts=0 ExitCode=0:0 TimeLimit=UNLIMITED StartTime=Unknown EndTime=Unknown NodeList=(null)"
    " NumNodes=2-2"
)


def test_a_running_job_is_read_by_its_keys_whatever_its_owner_writes_into_comments():
    (job,) = jobs_from(RUNNING + "\n")
    assert (job.id, job.name, job.user, job.fate) == (7, "pdctl-demo", "ada", Fate.RUNNING)
    assert (job.nodelist, job.num_nodes, job.num_restarts, job.reason) == ("node[1-2]", 2, 2, None)
    assert job.limit_s == 86400
    assert job.started_at == datetime(2026, 11, 30, 4, 21, 22).timestamp()
    assert job.comment == "tok"
    assert job.exit_code is None  # it is not over


def test_keys_that_come_and_go_with_releases_do_not_matter():
    later = RUNNING.replace(" MCS_label=N/A", " Planet=earth SubmitLine=sbatch -x y=z").replace(" Nice=0", "")
    assert jobs_from(later) == jobs_from(RUNNING)
    assert jobs_from("slurm_load: warning: a new line\n" + RUNNING) == jobs_from(RUNNING)


def test_the_components_of_a_heterogeneous_job_are_one_job():
    first = PENDING.replace("NodeList=(null)", "NodeList=node[1-2]").replace("PENDING", "RUNNING")
    second = first.replace("JobId=12 ", "JobId=13 ", 1).replace("Offset=0", "Offset=1")
    second = second.replace("node[1-2]", "node7").replace("NumNodes=2-2", "NumNodes=1")
    (job,) = jobs_from(f"{first}\n{second}\n")
    assert (job.id, job.nodelist, job.num_nodes) == (12, "node[1-2],node7", 3)


def test_a_waiting_job_has_no_nodes_no_times_and_no_limit_where_there_is_none():
    (job,) = jobs_from(PENDING)
    assert (job.fate, job.reason) == (Fate.PENDING, "Resources")
    assert (job.nodelist, job.started_at, job.ends_at, job.limit_s) == (None, None, None, None)


def test_the_end_of_a_job_is_a_code_or_a_signal():
    (failed,) = jobs_from(RUNNING.replace("RUNNING", "FAILED").replace("ExitCode=0:0", "ExitCode=4:0"))
    (killed,) = jobs_from(RUNNING.replace("RUNNING", "TIMEOUT").replace("ExitCode=0:0", "ExitCode=0:15"))
    assert (failed.exit_code, failed.exit_signal) == (4, None)
    assert (killed.exit_code, killed.exit_signal) == (None, 15)


def test_accounts_tell_of_jobs_that_are_forgotten():
    line = SEPARATOR.join(
        ("7", "pdctl-demo", "ada", "CANCELLED by 1000", "0:15", "node[1-2]", "2026-11-30T04:21:22", "Unknown")
    )
    job = job_from_accounting(f"sacct: warning\n{line}\n")
    assert job is not None
    assert (job.id, job.fate, job.exit_signal, job.nodelist) == (7, Fate.CANCELLED, 15, "node[1-2]")
    assert job_from_accounting("") is None


def test_a_node_is_well_unless_its_state_is_marked():
    text = "\n".join(
        f"NodeName=node{number} NodeAddr=10.0.0.{number} State={state} Reason={reason}"
        for number, (state, reason) in enumerate(
            [
                ("MIXED", "(null)"),
                ("DOWN*", "Not responding [slurm@2026-11-30T04:00:00]"),
                ("ALLOCATED+DRAIN", "fans"),
                ("IDLE*", "(null)"),
            ]
        )
    )
    nodes = nodes_from(text)
    assert [node.is_well for node in nodes] == [True, False, False, False]
    assert nodes[1].reason == "Not responding [slurm@2026-11-30T04:00:00]"
    assert [node.address for node in nodes[:2]] == ["10.0.0.0", "10.0.0.1"]


def test_a_column_more_and_a_warning_between_are_passed_over():
    text = f"1{SEPARATOR}a\nsqueue: warning: old\n2{SEPARATOR}b{SEPARATOR}new\n"
    assert [tuple(row[:2]) for row in rows(text, 2)] == [("1", "a"), ("2", "b")]
