"""The parts of examples/01-laptop: run.sh with noted calls, the chat client against a scripted server."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "01-laptop"
UP = "pdctl up topologies/laptop_1p1d.yaml"
STATUS = "pdctl status laptop-1p1d"
CHAT = "python3 examples/01-laptop/chat.py http://127.0.0.1:8000"
DOWN = "pdctl down laptop-1p1d"


class Script:
    """run.sh with a `pdctl` and a `python3` that only note how they were called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.noted = folder / "calls"
        for name in ("pdctl", "python3"):
            program = folder / name
            program.write_text(
                f'#!/bin/sh\necho "{name} $*" >>"{self.noted}"\n'
                'if [ "$1" = "$STUCK" ]; then sleep 60; fi\n'
                'if [ "$1" = "$FAILING" ]; then exit 7; fi\n'
            )
            program.chmod(0o755)

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [EXAMPLE / "run.sh", *arguments],
            env={"PATH": f"{self.folder}:{os.environ['PATH']}", "STUCK": "", "FAILING": "", **variables},
            cwd=self.folder,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
            preexec_fn=_heed_signals,
        )

    def run(self, *arguments: str, **variables: str) -> int:
        return self.start(*arguments, **variables).wait(timeout=60)

    def calls(self) -> list[str]:
        return self.noted.read_text().splitlines() if self.noted.exists() else []


def _heed_signals() -> None:
    """Tests that run in the background of a shell ignore Ctrl-C, and so would all that they start."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return Script(tmp_path)


def test_run_asks_between_up_and_down(script: Script) -> None:
    assert script.run() == 0
    assert script.calls() == [UP, STATUS, CHAT, DOWN]


def test_run_passes_a_question_on_as_one_argument(script: Script) -> None:
    assert script.run("Who are you?") == 0
    assert script.calls()[2] == f"{CHAT} Who are you?"


def test_run_leaves_the_deployment_when_told_to(script: Script) -> None:
    assert script.run(KEEP="1") == 0
    assert script.calls() == [UP, STATUS, CHAT]


@pytest.mark.parametrize(
    ("failing", "calls"),
    [
        ("up", [UP, DOWN]),
        ("status", [UP, STATUS, DOWN]),
        ("examples/01-laptop/chat.py", [UP, STATUS, CHAT, DOWN]),
    ],
)
def test_run_takes_down_what_failed_and_tells_it(script: Script, failing: str, calls: list[str]) -> None:
    assert script.run(FAILING=failing, KEEP="1") == 7
    assert script.calls() == calls


def test_run_fails_when_only_down_fails(script: Script) -> None:
    assert script.run(FAILING="down") == 1


def test_ctrl_c_during_up_takes_the_deployment_down(script: Script) -> None:
    process = script.start(STUCK="up")
    deadline_s = time.monotonic() + 30
    while not script.calls() and time.monotonic() < deadline_s:
        time.sleep(0.02)

    os.killpg(process.pid, signal.SIGINT)

    assert process.wait(timeout=30) == 130
    assert script.calls() == [UP, DOWN]


Server = Callable[[int, bytes], str]


@pytest.fixture
def serve() -> Iterator[Server]:
    """Start a server that gives one answer to every POST; its address."""
    running: list[tuple[HTTPServer, threading.Thread]] = []

    def start(code: int, answer: bytes) -> str:
        class Answer(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["Content-Length"]))
                self.send_response(code)
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        server = HTTPServer(("127.0.0.1", 0), Answer)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        running.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}"

    yield start
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


def chat(router: str, question: str = "Who?") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, EXAMPLE / "chat.py", router, question],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":""}}]}\n\n'
GOOD = b'data: {"choices":[{"delta":{"content":"Good "}}]}\n\n'
NIGHT = GOOD + b'data: {"choices":[{"delta":{"content":"night"}}]}\n\n'
DONE = b'data: {"choices":[]}\n\ndata: [DONE]\n\n'


def test_chat_prints_question_and_answer(serve: Server) -> None:
    said = chat(serve(200, ROLE + b": still here\n\n" + NIGHT + DONE))

    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == "question: Who?\nanswer:   Good night\n"


@pytest.mark.parametrize(
    ("code", "answer", "fault"),
    [
        (200, ROLE + NIGHT, "the answer broke off"),
        (200, ROLE + DONE, "the answer is empty"),
        (200, NIGHT + b'data: {"error":{"message":"prefill is gone"}}\n\n', "prefill is gone"),
        (200, b"data: {\n\n", "sends what is not JSON"),
        (503, b'{"error":{"message":"no instance is ready"}}', "answers 503: "),
    ],
)
def test_chat_without_a_whole_answer_fails(serve: Server, code: int, answer: bytes, fault: str) -> None:
    said = chat(serve(code, answer))

    assert said.returncode == 1
    assert "error: " in said.stderr
    assert fault in said.stderr
    assert "Traceback" not in said.stderr


def test_chat_without_a_server_fails() -> None:
    said = chat("http://127.0.0.1:1")

    assert said.returncode == 1
    assert "http://127.0.0.1:1 does not answer" in said.stderr
