"""Do the limits that started processes inherit leave them enough memory to pin and files to open?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.amounts import MIB, amount
from pdctl.doctor.facts import Limits
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.survey import Survey

LIMITS = Topic("limits")
LEAST_LOCKED_BYTES = 64 * MIB  # what RDMA libraries pin for their own queues alone
GOOD_OPEN_FILES = 8192  # a connection each: requests, peers, threads' own
_WHERE = "in /etc/security/limits.conf, and in sshd's or the scheduler's unit: logins get those"


def check_limits(survey: Survey) -> Iterator[Finding]:
    for needs, facts in survey.answered:
        faults = (*_locked_memory(needs, facts.limits), *_open_files(needs, facts.limits))
        yield from faults or (LIMITS.ok(needs.name, "enough to lock and to open"),)


def _locked_memory(needs: NodeNeeds, limits: Limits) -> Iterator[Finding]:
    if not needs.has_rdma or limits.memlock_bytes is None or limits.may_lock_all:
        return
    say = LIMITS.error if limits.memlock_bytes < LEAST_LOCKED_BYTES else LIMITS.warning
    yield say(
        needs.name,
        "PD705",
        f"processes may lock {amount(limits.memlock_bytes)} of memory, RDMA pins all that it transfers",
        notes=("beyond the limit the registration of memory fails",),
        help=f"set `memlock` to unlimited {_WHERE}",
    )


def _open_files(needs: NodeNeeds, limits: Limits) -> Iterator[Finding]:
    """Engines raise their own soft limit up to the hard one."""
    if limits.open_files_hard is None or limits.open_files_hard >= GOOD_OPEN_FILES:
        return
    yield LIMITS.warning(
        needs.name,
        "PD706",
        f"processes may open {limits.open_files_hard} files",
        notes=("under load connections are refused when they run out",),
        help=f"set `nofile` to 65535 or more {_WHERE}",
    )
