"""What is said when a process doesn't come up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.diagnostics import Diagnostic, Excerpt
from pdctl.hostlist import fold
from pdctl.plan.model import ProcessSpec
from pdctl.state.observed import ObservedProcess, Phase, UnreachableNode


def not_started(process: ProcessSpec, reason: str) -> Diagnostic:
    return Diagnostic(
        code="PD601",
        message=f"`{process.id}` could not be started on `{process.node}`: {reason}",
        notes=(f"its program is `{process.argv[0]}`",),
        names=(process.id, process.node),
    )


def has_ended(process: ProcessSpec, how: str, *, ran_s: float, lines: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(
        code="PD602",
        message=f"`{process.id}` {how} before the deployment was ready",
        notes=(f"it ran for {ran_s:.1f} s on `{process.node}`",),
        help="mend the cause and run `pdctl up` again: what serves already is kept",
        excerpts=_excerpts(process, lines),
        names=(process.id, process.node),
    )


def is_late(process: ProcessSpec, *, deadline_s: float, seen: str, lines: tuple[str, ...]) -> Diagnostic:
    return Diagnostic(
        code="PD603",
        message=f"`{process.id}` was not ready within {deadline_s:g} s",
        notes=(f"its last probe saw: {seen}", "it still runs"),
        help="if it only needs longer, raise `health.ready_deadline_s` and run `pdctl up` again",
        excerpts=_excerpts(process, lines),
        names=(process.id, process.node),
    )


def nodes_lost(processes: Sequence[ProcessSpec], lost: Mapping[str, UnreachableNode]) -> list[Diagnostic]:
    """One for all nodes that were lost for the same reason."""
    by_reason: dict[str, list[ProcessSpec]] = {}
    for process in processes:
        by_reason.setdefault(lost[process.node].reason, []).append(process)
    return [
        Diagnostic(
            code="PD610",
            message=f"{fold(each.node for each in group)} was lost before the deployment was ready: {reason}",
            notes=(
                f"`{fold(each.id for each in group)}` may run there or not: unreachable is not stopped",
                "nothing more was started; what runs on the other nodes goes on",
            ),
            help="make the node reachable and run `pdctl up` again: what serves already is kept",
        )
        for reason, group in by_reason.items()
    ]


def how_it_ended(observed: ObservedProcess | None) -> str:
    """As the end of a sentence whose subject is the process."""
    if observed is None:
        return "vanished"
    if observed.phase is Phase.LOST:
        return f"was lost: {observed.reason or 'it left no record of its end'}"
    if observed.signal is not None:
        return f"was ended by signal {observed.signal}"
    if observed.exit_code is None:
        return observed.reason or "ended"
    return f"exited with code {observed.exit_code}"


def _excerpts(process: ProcessSpec, lines: tuple[str, ...]) -> tuple[Excerpt, ...]:
    return (Excerpt(title=f"last lines of `{process.id}`", lines=lines),) if lines else ()
