"""Calls whose operator is gone, and the next operator's look that waits for them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from pathlib import Path

import pytest

DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); time.sleep(100)"


def _open_places(pid: int) -> set[Path]:
    """What the process has open; a descriptor that it closes between listing and reading is left out."""
    places: set[Path] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            places.add(descriptor.readlink())
    return places


@pytest.fixture
def stopping(node, wait_until):
    """A stop of `a-0.0` that has begun and will take its grace of two seconds."""
    node.start_python("a-0.0", DEAF, grace_s=2)
    wait_until(lambda: node.output("a-0.0"))
    argv = node.argv("stop", str(node.root), "demo", "a-0.0")
    call = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    place = (node.root / "demo").resolve()
    wait_until(lambda: place in _open_places(call.pid))
    yield
    assert call.wait(30) == 0


def test_a_look_that_settles_sees_what_a_stop_on_its_way_makes(node, stopping):
    assert node.status("a-0.0")["state"] == "running"
    (entry,) = node.ask("status", request={"settle_s": 30})
    assert (entry["state"], entry["is_stopped"]) == ("exited", True)


def test_a_look_settles_no_longer_than_it_may(node, stopping):
    (entry,) = node.ask("status", request={"settle_s": 0.1})
    assert entry["state"] == "running"


def test_a_process_that_runs_is_no_call_on_its_way(node):
    node.start("a-0.0", "sleep", "100")
    place = os.open(node.root / "demo", os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(place)
