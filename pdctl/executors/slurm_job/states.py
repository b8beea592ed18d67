"""What each state of a Slurm job means for a deployment: one table, for all releases of Slurm.

Source: `squeue(1)`, JOB STATE CODES and JOB REASON CODES, of releases 20.11 to 25.05.
"""

from __future__ import annotations

from enum import StrEnum


class Fate(StrEnum):
    """What has become of a job, as far as pdctl acts differently."""

    PENDING = "pending"
    HELD = "held"  # waits until a person lets it go
    REQUEUED = "requeued"  # waits, and has run before
    STARTING = "starting"  # has nodes, which are not ready yet
    RUNNING = "running"
    SUSPENDED = "suspended"  # has nodes, and its processes stand still
    ENDING = "ending"
    ENDED_WELL = "ended well"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    PREEMPTED = "preempted"
    NODE_FAILED = "node failed"
    UNKNOWN = "unknown"  # a state that this version has never heard of

    @property
    def is_over(self) -> bool:
        """An unknown state isn't: who takes a living job for gone starts a second one."""
        return self in _OVER

    @property
    def waits(self) -> bool:
        return self in (Fate.PENDING, Fate.HELD, Fate.REQUEUED)


_OVER = frozenset(
    (
        Fate.ENDED_WELL,
        Fate.FAILED,
        Fate.CANCELLED,
        Fate.TIMED_OUT,
        Fate.PREEMPTED,
        Fate.NODE_FAILED,
    )
)

FATES: dict[str, Fate] = {
    "PENDING": Fate.PENDING,
    "REQUEUE_FED": Fate.REQUEUED,
    "REQUEUED": Fate.REQUEUED,
    "REQUEUE_HOLD": Fate.HELD,
    "RESV_DEL_HOLD": Fate.HELD,
    "SPECIAL_EXIT": Fate.HELD,
    "CONFIGURING": Fate.STARTING,
    "POWER_UP_NODE": Fate.STARTING,
    "RUNNING": Fate.RUNNING,
    "RESIZING": Fate.RUNNING,
    "SIGNALING": Fate.RUNNING,
    "UPDATE_DB": Fate.RUNNING,
    "STOPPED": Fate.SUSPENDED,
    "SUSPENDED": Fate.SUSPENDED,
    "COMPLETING": Fate.ENDING,
    "STAGE_OUT": Fate.ENDING,
    "EXPEDITING": Fate.PENDING,
    "COMPLETED": Fate.ENDED_WELL,
    "BOOT_FAIL": Fate.FAILED,
    "FAILED": Fate.FAILED,
    "LAUNCH_FAILED": Fate.FAILED,
    "OUT_OF_MEMORY": Fate.FAILED,
    "RECONFIG_FAIL": Fate.FAILED,
    "CANCELLED": Fate.CANCELLED,
    "REVOKED": Fate.CANCELLED,
    "DEADLINE": Fate.TIMED_OUT,
    "TIMEOUT": Fate.TIMED_OUT,
    "PREEMPTED": Fate.PREEMPTED,
    "NODE_FAIL": Fate.NODE_FAILED,
}

_HELD_REASONS = frozenset(("JobHeldAdmin", "JobHeldUser", "RequeuedHeld", "launch_failed_requeued_held"))

# A job that waits for one of these waits for ever, unless somebody changes the job or the cluster.
_HOPELESS_REASONS = frozenset(
    (
        "AccountingPolicy",
        "AssociationJobLimit",
        "BadConstraints",
        "InvalidAccount",
        "InvalidQOS",
        "JobHeldAdmin",
        "JobHeldUser",
        "PartitionConfig",
        "PartitionNodeLimit",
        "PartitionTimeLimit",
        "QOSNotAllowed",
        "QOSTimeLimit",
        "ReservationDeleted",
        "AssocMaxNodePerJobLimit",
        "AssocMaxWallDurationPerJobLimit",
        "AssocMaxGRESPerJob",
        "QOSMaxNodePerJobLimit",
        "QOSMaxNodePerUserLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMaxGRESPerJob",
    )
)


def fate_of(state: str, *, reason: str | None = None, num_restarts: int = 0) -> Fate:
    """`state` as Slurm prints it, also `CANCELLED by 1000` and `COMPLETED+`, which `sacct` prints."""
    words = state.split()
    fate = FATES.get(words[0].rstrip("+").upper(), Fate.UNKNOWN) if words else Fate.UNKNOWN
    if fate is Fate.PENDING and reason in _HELD_REASONS:
        return Fate.HELD
    if fate is Fate.PENDING and num_restarts > 0:
        return Fate.REQUEUED
    return fate


def is_hopeless(reason: str | None) -> bool:
    """Whether a job that waits for this reason will wait for ever."""
    return reason is not None and reason.partition(",")[0] in _HOPELESS_REASONS
