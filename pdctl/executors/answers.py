"""The shim's JSON answers as values. One table maps its states to phases."""

from __future__ import annotations

import signal
from collections.abc import Sequence

from pdctl.executors.calls import (
    CommandEnded,
    CommandOutput,
    DeviceMemory,
    OutputLine,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    Remains,
    StartOutcome,
    StopOutcome,
    Survivor,
)
from pdctl.fields import Fields
from pdctl.state.observed import ObservedProcess, Phase

DEFAULT_GRACE_S = 10.0  # for a process whose spec can't be read any more; as in the shim

# A node knows that a process runs; only probes tell whether it is ready. An orphan runs too, unsupervised.
PHASE_OF_STATE = {
    "starting": Phase.STARTING,
    "running": Phase.STARTING,
    "orphaned": Phase.STARTING,
    "exited": Phase.EXITED,
    "lost": Phase.LOST,
}


def read_process(entry: Fields, node: str) -> ObservedProcess:
    """One entry of `status`. `node` is used where the entry can't tell, its directory being gone."""
    state, grace_s = entry.text("state"), entry.optional_number("grace_s")
    return ObservedProcess(
        id=entry.text("process_id"),
        node=entry.optional_text("node") or node,
        phase=Phase.FAILED if _has_failed(entry) else PHASE_OF_STATE[state],
        digest=entry.optional_text("digest"),
        run_id=entry.optional_text("run_id"),
        pid=entry.optional_integer("pid"),
        age_s=entry.optional_number("age_s"),
        ended_at=entry.optional_number("ended_at"),
        exit_code=entry.optional_integer("exit_code"),
        signal=entry.optional_integer("signal"),
        reason=entry.optional_text("reason") or _ending_words(entry),
        rss_bytes=entry.optional_integer("rss_bytes"),
        device_bytes=entry.optional_integer("device_bytes"),
        num_alive=entry.integer("num_alive"),
        is_supervised=state != "orphaned",
        grace_s=DEFAULT_GRACE_S if grace_s is None else grace_s,
        argv=entry.texts("argv"),
        env=entry.text_map("env"),
    )


def read_start(answer: Fields, process_id: str, digest: str) -> StartOutcome:
    """A living run of the same digest is what was wanted: an earlier answer may have got lost."""
    if answer.flag("started"):
        return StartOutcome(process_id=process_id, run_id=answer.text("run_id"), pid=answer.integer("pid"))
    running = answer.optional_object("running")
    if running and running.text("state") == "running" and running.optional_text("digest") == digest:
        return StartOutcome(
            process_id=process_id, run_id=running.text("run_id"), pid=running.optional_integer("pid")
        )
    return StartOutcome(process_id=process_id, error=answer.text("error"))


def read_stop(answer: Fields) -> StopOutcome:
    survivors = tuple(
        Survivor(pid=each.integer("pid"), command=each.text("command"), state=each.text("state"))
        for each in answer.objects("survivors")
    )
    return StopOutcome(
        process_id=answer.text("process_id"),
        was_alive=answer.flag("was_alive"),
        killed=answer.flag("killed"),
        elapsed_s=answer.number("elapsed_s"),
        survivors=survivors,
        pids=tuple(pid for pid in answer.items("pids") if isinstance(pid, int)),
    )


def read_probe(answer: Fields) -> ProbeAnswer:
    return ProbeAnswer(
        status=answer.optional_integer("status"),
        body=answer.text("body"),
        error=answer.optional_text("error"),
        elapsed_s=answer.number("elapsed_s"),
    )


def read_tails(answer: Fields) -> dict[str, tuple[str, ...]]:
    return {process_id: answer.texts(process_id) for process_id in answer.values}


def read_port(answer: Fields, query: PortQuery) -> PortAnswer:
    return PortAnswer(
        query=query,
        problem=answer.optional_text("problem"),
        pid=answer.optional_integer("pid"),
        command=answer.optional_text("command"),
        process=answer.optional_text("process"),
    )


def read_remains(answer: Fields, node: str, queries: Sequence[PortQuery]) -> Remains:
    devices = answer.object("devices")
    memory = (
        DeviceMemory(
            pid=each.integer("pid"), device=each.text("device"), used_mib=each.optional_integer("used_mib")
        )
        for each in devices.objects("held")
    )
    found = zip(answer.objects("ports"), queries, strict=True)
    return Remains(
        node=node,
        processes=answer.texts("processes"),
        ports=tuple(read_port(each, query) for each, query in found),
        memory=tuple(memory),
        unproven=devices.optional_text("unproven"),
    )


def read_command_output(line: Fields) -> CommandOutput:
    if "line" in line.values:
        return OutputLine(text=line.text("line"), is_error=line.flag("is_error"))
    return CommandEnded(
        exit_code=line.optional_integer("exit_code"),
        signal=line.optional_integer("signal"),
        error=line.optional_text("error"),
    )


def _has_failed(entry: Fields) -> bool:
    """Ended by itself, and not with code 0."""
    is_exited = entry.text("state") == "exited"
    return is_exited and not entry.flag("is_stopped") and entry.optional_integer("exit_code") != 0


def _ending_words(entry: Fields) -> str | None:
    if entry.text("state") != "exited":
        return None
    if entry.flag("is_stopped"):
        return "stopped"
    number = entry.optional_integer("signal")
    if number is not None:
        return f"ended by signal {number} ({_signal_name(number)})"
    code = entry.optional_integer("exit_code")
    return f"exit code {'unknown' if code is None else code}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # a real-time signal
        return "real-time"
