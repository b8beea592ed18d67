"""The program that runs commands on a node, spoken to as its step's other end does."""

from __future__ import annotations

import ast
import base64
import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from pdctl.executors.slurm_job.session import FAR_END


def _request(number: int, *argv: str, stdin: bytes = b"", timeout_s: float = 20) -> bytes:
    encoded = base64.b64encode(stdin).decode()
    request = {"id": number, "argv": list(argv), "stdin": encoded, "timeout_s": timeout_s}
    return json.dumps(request).encode() + b"\n"


def _served(*requests: bytes) -> Mapping[int, Mapping[str, object]]:
    """Answers by request, outputs decoded; it has ended by itself after the last one."""
    argv = [sys.executable, "-I", "-S", "-c", FAR_END.read_text(), "word:"]
    done = subprocess.run(argv, input=b"".join(requests), capture_output=True, timeout=60, check=True)
    first, *lines = done.stdout.decode().splitlines()
    assert first == "word:{}"
    answers = [json.loads(line.removeprefix("word:")) for line in lines]
    outputs = ("stdout", "stderr")
    return {
        each["id"]: {
            key: base64.b64decode(value) if key in outputs else value
            for key, value in each.items()
            if key != "id"
        }
        for each in answers
    }


def test_each_command_is_answered_with_its_code_and_its_bytes():
    program = "import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1]); sys.exit(3)"
    answers = _served(
        _request(1, sys.executable, "-S", "-c", program, stdin=b"\xff\n\0a"),
        _request(2, "sh", "-c", "echo b >&2"),
    )
    assert answers[1] == {"code": 3, "stdout": b"a\0\n\xff", "stderr": b""}
    assert answers[2] == {"code": 0, "stdout": b"", "stderr": b"b\n"}


def test_a_slow_command_holds_up_no_other():
    answers = _served(_request(1, "sleep", "0.5"), _request(2, "true"))
    assert list(answers) == [2, 1]


@pytest.mark.parametrize("program", ["/no/such", "/etc/passwd"])
def test_a_program_that_cannot_run_ends_with_the_code_of_a_shell(program):
    assert _served(_request(1, program))[1]["code"] == 127


def test_a_command_beyond_its_time_is_ended_and_told():
    assert _served(_request(1, "sleep", "1000", timeout_s=0.1))[1] == {"lost": "no answer within 0.1 s"}


def test_it_is_a_program_for_python_3_8():
    ast.parse(FAR_END.read_text(), feature_version=(3, 8))
