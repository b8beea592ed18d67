"""Whether a deployment still serves, from what is seen of its processes. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pdctl.hostlist import fold
from pdctl.plan.model import LaunchPlan, RoleKind
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus, ProcessStatus

_GONE = frozenset((Phase.EXITED, Phase.FAILED, Phase.LOST))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """`why` says what is gone, None when all is there."""

    can_serve: bool
    why: str | None = None


def judge(plan: LaunchPlan, status: DeploymentStatus, failed_nodes: Collection[str]) -> Verdict:
    """A router, and one whole instance of each role, are enough.

    A process on a node that can't be reached is gone only where the cluster has given the node up.
    """
    gone = [each for each in status.processes if _is_gone(each, failed_nodes)]
    gone_ids = {each.id for each in gone}
    whole_roles = {
        instance.role
        for instance in plan.instances
        if not any(each.instance_id == instance.id and each.id in gone_ids for each in plan.processes)
    }
    return Verdict(can_serve=whole_roles == set(RoleKind), why=_why(gone) if gone else None)


def _is_gone(process: ProcessStatus, failed_nodes: Collection[str]) -> bool:
    if process.phase in _GONE:
        return True
    return process.phase is Phase.UNKNOWN and process.node in failed_nodes


def _why(gone: list[ProcessStatus]) -> str:
    by_reason: dict[str, list[str]] = {}
    for process in gone:
        by_reason.setdefault(_reason(process), []).append(process.id)
    return "; ".join(f"{fold(ids)} {reason}" for reason, ids in by_reason.items())


def _reason(process: ProcessStatus) -> str:
    if process.phase is Phase.UNKNOWN:
        return f"was lost with its node {process.node}"
    if process.exit_code is not None:
        return f"exited with code {process.exit_code}"
    return f"is gone: {process.reason or process.phase.value}"
