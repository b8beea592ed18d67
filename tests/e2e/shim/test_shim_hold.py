"""Processes held in the foreground, as the task of a scheduler's step."""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest

SHOW = "import os; print({name: os.environ.get(name) for name in ('CUDA_VISIBLE_DEVICES', 'A')})"


class Held:
    """A step's task: what it says is read as it comes."""

    def __init__(
        self, node: Any, process_id: str, *argv: str, step: dict[str, str], **fields: object
    ) -> None:
        self.child = subprocess.Popen(
            node.argv("hold", str(node.root), "demo", process_id),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | step,
        )
        assert self.child.stdin is not None
        with self.child.stdin as pipe:
            pipe.write(json.dumps(node.spec(process_id, *argv, **fields)).encode())

    def line(self) -> Any:
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def end(self) -> int:
        assert self.child.stdout is not None
        self.child.stdout.close()
        return self.child.wait(20)


@pytest.fixture
def hold(node) -> Iterator[Callable[..., Held]]:
    made: list[Held] = []

    def start(process_id: str, *argv: str, step: dict[str, str] | None = None, **fields: object) -> Held:
        made.append(Held(node, process_id, *argv, step=step or {}, **fields))
        return made[-1]

    yield start
    for held in made:
        held.child.terminate()
        held.end()


def test_a_step_tells_the_start_and_the_end_and_ends_with_the_processs_code(node, hold):
    held = hold("a-0.0", "sh", "-c", "echo hello; exit 3", step={"SLURM_JOB_ID": "47", "SLURM_STEP_ID": "2"})
    began = held.line()
    assert (began["started"], began["run_id"], began["error"]) == (True, "000001", None)
    assert held.line() == {"code": 3, "signal": None, "stopped": False, "reason": None}
    assert held.end() == 3
    assert node.output("a-0.0") == "hello\n"
    assert node.recorded("a-0.0")["step"] == "47.2"
    assert (node.status("a-0.0")["state"], node.status("a-0.0")["exit_code"]) == ("exited", 3)


def test_while_it_is_held_it_is_seen_and_stopped_as_any_other(node, hold, is_alive):
    held = hold("a-0.0", "sleep", "100")
    pid = held.line()["pid"]
    assert node.status("a-0.0")["state"] == "running"
    assert node.start("a-0.0", "sleep", "100")["error"] == "it is already running"
    (outcome,) = node.stop("a-0.0")
    assert (outcome["was_alive"], outcome["killed"]) == (True, False)
    assert not is_alive(pid)
    assert held.line() == {"code": None, "signal": signal.SIGTERM, "stopped": True, "reason": None}
    assert held.end() == 128 + signal.SIGTERM


def test_a_term_to_the_step_gives_the_process_its_grace(node, hold):
    program = (
        "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(7)); print('on'); time.sleep(99)"
    )
    held = hold("a-0.0", sys.executable, "-S", "-u", "-c", program)
    held.line()
    while "on" not in node.output("a-0.0"):
        pass
    held.child.send_signal(signal.SIGTERM)
    assert held.line() == {"code": 7, "signal": None, "stopped": True, "reason": None}
    assert held.end() == 7
    assert node.status("a-0.0")["is_stopped"]


def test_what_ignores_a_term_is_killed_with_all_that_it_started(node, hold, is_alive):
    program = "trap '' TERM; sleep 101 & echo $!; wait; wait"
    held = hold("a-0.0", "sh", "-c", program, grace_s=0.2)
    held.line()
    while not (said := node.output("a-0.0")):
        pass
    held.child.send_signal(signal.SIGTERM)
    assert held.line()["signal"] == signal.SIGKILL
    assert held.end() == 128 + signal.SIGKILL
    assert not is_alive(int(said))


def test_a_program_that_cannot_begin_ends_the_step_with_the_code_of_a_shell(node, hold):
    held = hold("a-0.0", "/no/such/program")
    assert held.line()["error"] == "cannot execute `/no/such/program`: No such file or directory"
    assert held.end() == 127
    assert node.status("a-0.0")["exit_code"] == 127


def test_a_second_step_of_one_process_is_refused(node, hold):
    first, second = hold("a-0.0", "sleep", "100"), None
    first.line()
    second = hold("a-0.0", "sleep", "100")
    refusal = second.line()
    assert (refusal["error"], refusal["running"]["state"]) == ("it is already running", "running")
    assert second.end() == 125


def test_a_spec_that_makes_no_sense_ends_the_step_as_a_request_that_could_not_be_served(hold):
    held = hold("a-0.0")
    assert held.line() == {"error": "`argv` is not a list of words"}
    assert held.end() == 2


def test_the_plans_devices_are_those_that_the_step_got(node, hold):
    held = hold(
        "a-0.0",
        *(sys.executable, "-c", SHOW),
        step={"CUDA_VISIBLE_DEVICES": "2,3,6,7"},
        env={"CUDA_VISIBLE_DEVICES": "1,3", "A": "b"},
    )
    held.line()
    held.line()
    assert held.end() == 0
    assert ast.literal_eval(node.output("a-0.0")) == {"CUDA_VISIBLE_DEVICES": "3,7", "A": "b"}
    assert node.recorded("a-0.0")["given"] == {"CUDA_VISIBLE_DEVICES": "3,7"}
    assert node.status("a-0.0")["env"]["CUDA_VISIBLE_DEVICES"] == "1,3"


def test_a_device_that_the_step_has_not_got_keeps_the_program_from_beginning(node, hold):
    held = hold("a-0.0", "true", step={"CUDA_VISIBLE_DEVICES": "2,3"}, env={"CUDA_VISIBLE_DEVICES": "1,2"})
    why = "the plan's CUDA_VISIBLE_DEVICES is `1,2`, but the step's is `2,3`"
    assert held.line() == {"started": False, "error": why}
    assert held.end() == 125
    assert (node.status("a-0.0")["state"], node.status("a-0.0")["reason"]) == ("exited", why)


def test_a_step_whose_reader_is_gone_lives_on(node, hold, wait_until):
    """Slurm's own client may die; the process is Slurm's and ours."""
    held = hold("a-0.0", "sleep", "100")
    held.line()
    held.child.stdout.close()
    node.stop("a-0.0")
    assert held.end() == 128 + signal.SIGTERM
    assert node.status("a-0.0")["is_stopped"]
