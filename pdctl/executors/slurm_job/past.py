"""What a job that is over has left: run directories in the shared folder, and the steward's last record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pdctl.executors.calls import LookQuery, ProbeAnswer, Sight
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.executors.slurm_job.home import ExitRecord
from pdctl.executors.slurm_job.place import PastJob
from pdctl.state.observed import ObservedProcess, ObservedState, Phase


def look_back(query: LookQuery, past: PastJob, left: ShimmedExecutor, ended: ExitRecord | None) -> Sight:
    """`left` reads the shared folder on this machine. What still lives here is seen as it is."""
    sight = left.look(replace(query, probes=()))
    seen = [_as_ended(process, past) for process in sight.state.processes]
    return Sight(
        state=ObservedState(
            deployment=query.deployment, processes=(*seen, *_only_recorded(seen, ended, past.why))
        ),
        answers=tuple(ProbeAnswer(error=past.why) for _ in query.probes),
        tails=sight.tails,
    )


def _as_ended(process: ObservedProcess, past: PastJob) -> ObservedProcess:
    """Without a record of its own end it ended with the job: only its node could tell more, and doesn't."""
    if process.phase is not Phase.LOST:
        return process
    return replace(process, phase=Phase.LOST if past.is_over else Phase.UNKNOWN, reason=past.why)


def _only_recorded(
    seen: Sequence[ObservedProcess], ended: ExitRecord | None, why: str
) -> list[ObservedProcess]:
    """Processes whose run directories lay on the nodes themselves, and are out of reach now."""
    known = {process.id for process in seen}
    codes: Mapping[str, int | None] = {} if ended is None else ended.processes
    return [
        ObservedProcess(
            id=process_id,
            node="",
            phase=Phase.LOST if code is None else Phase.FAILED if code else Phase.EXITED,
            exit_code=code,
            reason=why if code is None else f"exit code {code}",
        )
        for process_id, code in sorted(codes.items())
        if process_id not in known
    ]
