from __future__ import annotations

import pytest

from pdctl.executors import answers
from pdctl.executors.calls import CommandEnded, OutputLine
from pdctl.fields import FieldError, Fields
from pdctl.state.observed import Phase


def _entry(**fields) -> Fields:
    entry = {
        "process_id": "decode-0.0",
        "run_id": "000001",
        "node": "n1",
        "state": "running",
        "is_stopped": False,
        "num_alive": 1,
        "argv": [],
        "env": {},
    }
    return Fields("an entry", {**entry, **fields})


@pytest.mark.parametrize(
    ("fields", "phase", "reason"),
    [
        ({"state": "starting"}, Phase.STARTING, None),
        ({"state": "running"}, Phase.STARTING, None),
        ({"state": "orphaned", "reason": "its shim is gone"}, Phase.STARTING, "its shim is gone"),
        ({"state": "lost", "reason": "the host rebooted"}, Phase.LOST, "the host rebooted"),
        ({"state": "exited", "exit_code": 0}, Phase.EXITED, "exit code 0"),
        ({"state": "exited", "exit_code": 2}, Phase.FAILED, "exit code 2"),
        ({"state": "exited", "signal": 11}, Phase.FAILED, "ended by signal 11 (SIGSEGV)"),
        ({"state": "exited", "signal": 40}, Phase.FAILED, "ended by signal 40 (real-time)"),
        ({"state": "exited", "signal": 15, "is_stopped": True}, Phase.EXITED, "stopped"),
        ({"state": "exited", "exit_code": 1, "is_stopped": True}, Phase.EXITED, "stopped"),
        ({"state": "exited", "exit_code": 127, "reason": "cannot execute"}, Phase.FAILED, "cannot execute"),
        ({"state": "exited"}, Phase.FAILED, "exit code unknown"),
    ],
)
def test_states_of_the_shim_are_phases(fields, phase, reason):
    process = answers.read_process(_entry(**fields), "elsewhere")
    assert (process.phase, process.reason) == (phase, reason)
    assert process.is_supervised is (fields["state"] != "orphaned")


def test_the_asked_node_stands_in_where_the_entry_cannot_tell():
    assert answers.read_process(_entry(node=None), "n7").node == "n7"
    assert answers.read_process(_entry(), "n7").node == "n1"


def test_an_unknown_grace_is_the_shims_default():
    assert answers.read_process(_entry(), "n1").grace_s == 10.0
    assert answers.read_process(_entry(grace_s=0), "n1").grace_s == 0


def test_a_refused_start_is_fine_only_when_the_same_digest_runs():
    running = {"state": "running", "digest": "d1", "run_id": "000004", "pid": 7}

    def outcome(digest: str, **fields):
        answer = {"started": False, "error": "it is already running", "running": {**running, **fields}}
        return answers.read_start(Fields("start", answer), "a-0.0", digest)

    assert (outcome("d1").error, outcome("d1").pid, outcome("d1").run_id) == (None, 7, "000004")
    assert outcome("d2").error == "it is already running"
    assert outcome("d1", state="orphaned").error == "it is already running"


def test_output_and_end_of_a_command_are_told_apart():
    line = answers.read_command_output(Fields("line", {"line": "", "is_error": True}))
    end = answers.read_command_output(Fields("line", {"exit_code": None, "signal": 9, "error": None}))
    assert (line, end) == (OutputLine(text="", is_error=True), CommandEnded(signal=9))


def test_an_answer_of_another_shape_is_a_fault():
    with pytest.raises(FieldError):
        answers.read_process(_entry(num_alive="1"), "n1")
