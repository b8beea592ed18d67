"""`pdctl` on a real terminal: a pseudo-terminal of a given width, read to its end."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable

import pytest

pytestmark = pytest.mark.slow


def on_terminal(
    bench,
    *words: str,
    columns: int = 80,
    term: str = "xterm-256color",
    watch: Callable[[str], None] = lambda screen: None,
) -> tuple[int, str]:
    """The exit code, and all that was written to the terminal; `watch` sees what was written so far."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environ = {name: value for name, value in bench.environ.items() if name not in ("NO_COLOR", "COLUMNS")}
    process = subprocess.Popen(
        [sys.executable, "-m", "pdctl", *words],
        env={**environ, "TERM": term},
        cwd=bench.folder,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    while chunk := _read(ours):
        written += chunk
        watch(written.decode(errors="replace"))
    os.close(ours)
    return process.wait(60), written.decode()


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says EIO when the last process has closed the other end
        return b""


def _without_escapes(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


@pytest.mark.parametrize("columns", [80, 40])
def test_up_redraws_one_line_per_process_and_ends_with_the_first_request(bench, columns):
    def watch(screen: str) -> None:
        if re.search(r"decode-0\.0 +waiting +\d", _without_escapes(screen)):
            bench.show("loaded")

    topology = bench.topology(decode=bench.ready_with("loaded"))
    code, screen = on_terminal(bench, "up", topology, columns=columns, watch=watch)
    assert code == 0, screen
    frames = [_without_escapes(frame) for frame in screen.split("\x1b[2K")]
    assert any(re.search(r"decode-0\.0 +waiting +\d", frame) for frame in frames)
    assert max(len(line) for frame in frames[:-1] for line in frame.splitlines()) < columns
    assert "curl -s http://" in frames[-1]
    assert "bench: 3 created" in frames[-1]
    bench.pdctl("down", "bench")


def test_a_dumb_terminal_gets_lines_without_escape_sequences(bench):
    code, screen = on_terminal(bench, "up", bench.topology(), term="dumb")
    assert code == 0, screen
    assert "\x1b" not in screen
    assert "ready decode-0.0 after " in screen
    bench.pdctl("down", "bench")


def test_the_phase_is_coloured_and_also_a_word(bench):
    bench.pdctl("up", bench.topology())
    _code, screen = on_terminal(bench, "status")
    assert "\x1b[32mready" in screen
    bench.pdctl("down", "bench")


def test_logs_follow_until_ctrl_c_without_a_traceback(bench, wait_until):
    bench.pdctl("up", bench.topology())
    follower = bench.begin("logs", "-f", "--tail", "5")
    wait_until(lambda: "decode-0.0  │ " in bench.output(), "the first lines are there at once")
    os.killpg(follower.pid, 2)
    assert follower.wait(60) == 130
    assert "Traceback" not in bench.output()
    bench.pdctl("down", "bench")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_says_what_runs_and_the_command_that_goes_on(bench, wait_until, number):
    topology = bench.topology(decode="env: {DUMMY_READY_AFTER_S: '1000'}")
    up = bench.begin("up", topology, "--set", "health.stop_grace_s=2")
    wait_until(lambda: "ready prefill-0.0" in bench.output(), "prefill is ready")
    os.killpg(up.pid, number)
    assert up.wait(60) == 128 + number
    assert "interrupted: still running: decode-0.0,prefill-0.0" in bench.output()
    assert "`pdctl up t.yaml --set health.stop_grace_s=2` goes on from here" in bench.output()
    assert "not locked" in bench.pdctl("lock", "show", "bench").out
    bench.pdctl("down", "bench")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_before_anything_was_begun_is_told_in_one_line(bench, number):
    fifo = bench.folder / "late.yaml"
    os.mkfifo(fifo)
    up = bench.begin("up", "./late.yaml")
    with fifo.open("w"):  # opens once `up` reads it
        os.killpg(up.pid, number)
        assert up.wait(60) == 128 + number
    assert bench.output() == "interrupted: nothing was started or stopped\n"


def test_a_terminal_that_goes_away_ends_the_act_in_good_order(bench, wait_until):
    topology = bench.topology(decode="env: {DUMMY_READY_AFTER_S: '1000'}")
    terminal, end = os.openpty()
    up = subprocess.Popen(
        [sys.executable, "-m", "pdctl", "up", topology],
        cwd=bench.folder,
        env={**bench.environ, "TERM": "xterm"},
        stdin=end,
        stdout=end,
        stderr=end,
        preexec_fn=lambda: (os.setsid(), fcntl.ioctl(0, termios.TIOCSCTTY, 0)),
    )
    os.close(end)
    bench.running.append(up)
    screen = b""
    while b"waiting" not in screen:
        screen += os.read(terminal, 4096)
    os.close(terminal)  # the kernel sends HUP
    assert up.wait(60) == 128 + signal.SIGHUP
    assert "not locked" in bench.pdctl("lock", "show", "bench").out
    (act,) = bench.pdctl("history", "bench", "--json").json["acts"]
    assert act["entry"]["outcome"] == "interrupted"
    bench.pdctl("down", "bench")


def test_json_on_both_streams(bench):
    up = bench.pdctl("up", bench.topology(), "--json")
    assert up.json["counts"]["create"] == 3
    assert up.json["status"]["phase"] == "ready"
    events = [line for line in up.err.splitlines() if line]
    assert all(line.startswith('{"event": "') for line in events)
    down = bench.pdctl("down", "--json")  # the only deployment needs no name
    assert sorted(down.json["stopped"]) == ["decode-0.0", "prefill-0.0", "router-0.0"]


def test_quiet_says_nothing_but_the_result(bench):
    up = bench.pdctl("--quiet", "up", bench.topology())
    assert (up.code, up.err) == (0, "")
    assert up.out.startswith("bench (local): ready\n")
    assert bench.pdctl("-q", "down", "t.yaml").err == ""
