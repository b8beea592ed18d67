"""Calls whose operator is gone, and the next operator's look that waits for them."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

SLOW_TO_GO = (
    "import os, signal, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up')\n"
    "while not os.path.exists({sign!r}): time.sleep(0.02)"
)


def _open_places(pid: int) -> set[Path]:
    """What the process has open; a descriptor that it closes between listing and reading is left out."""
    places: set[Path] = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            places.add(descriptor.readlink())
    return places


@pytest.fixture
def begin(node, wait_until):
    """`begin("status", request)` is a call that has looked at the deployment and goes on."""

    def begin_call(verb: str, *process_ids: str, request: object) -> subprocess.Popen[str]:
        argv = node.argv(verb, str(node.root), "demo", *process_ids)
        call = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        with call.stdin as stdin:
            stdin.write(json.dumps(request))
        place = (node.root / "demo").resolve()
        wait_until(lambda: place in _open_places(call.pid))
        return call

    return begin_call


@pytest.fixture
def stopping(node, begin, wait_until, tmp_path):
    """A stop of `a-0.0` has begun; when this is called, the process goes, and with it the stop ends."""
    sign = tmp_path / "go"
    node.start_python("a-0.0", SLOW_TO_GO.format(sign=str(sign)), grace_s=100)
    wait_until(lambda: node.output("a-0.0"))
    with begin("stop", "a-0.0", request={}) as stop:
        yield sign.touch
        sign.touch()
        assert json.loads(stop.stdout.read())[0]["survivors"] == []


def test_a_look_that_settles_sees_what_a_stop_on_its_way_makes(node, begin, stopping):
    assert node.status("a-0.0")["state"] == "running"
    with begin("status", request={"settle_s": 100}) as look:
        stopping()
        (entry,) = json.loads(look.stdout.read())
    assert (entry["state"], entry["is_stopped"]) == ("exited", True)


@pytest.mark.usefixtures("stopping")
def test_a_look_settles_no_longer_than_it_may(node):
    (entry,) = node.ask("status", request={"settle_s": 0.1})
    assert entry["state"] == "running"


def test_a_process_that_runs_is_no_call_on_its_way(node):
    node.start("a-0.0", "sleep", "100")
    place = os.open(node.root / "demo", os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(place)
