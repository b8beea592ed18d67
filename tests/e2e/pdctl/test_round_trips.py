"""How often a node is asked. On many nodes, or on distant ones, this is what an act costs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

HOSTS = ("r1", "p1", "d1", "d2")


@pytest.fixture
def asked(bench):
    """`asked(*words)` runs `pdctl`, and gives by host what it was asked, in order."""
    calls = Path(bench.environ["PDCTL_STATE_DIR"]) / "calls.txt"

    def run(*words: str) -> dict[str, list[str]]:
        calls.unlink(missing_ok=True)
        done = bench.pdctl(*words)
        assert done.code == 0, done.err
        found: dict[str, list[str]] = {name: [] for name in HOSTS}
        for line in calls.read_text().splitlines():
            name, what = line.split()
            found[name].append(what)
        return found

    return run


@pytest.fixture
def topology(bench) -> str:
    """A router, a prefill and two decode instances, each on a host of its own."""
    nodes = ", ".join(f"{{name: {name}}}" for name in HOSTS)
    bench.topology(prefill="on: [p1]", decode="instances: 2, on: [d1, d2]")
    file = bench.folder / "t.yaml"
    text = file.read_text().replace("router: {", "router: {on: r1, ")
    file.write_text(f"{text}cluster:\n  executor: counted\n  nodes: [{nodes}]\n")
    return "t.yaml"


def test_a_node_is_asked_for_each_thing_once(asked, topology):
    up, status, down = asked("up", topology), asked("status", "bench"), asked("down", "bench")
    # An ordinary node: it keeps neither lock nor plan. Its first call finds no shim there.
    before_waiting = up["d2"][: up["d2"].index("start") + 1]
    assert before_waiting == ["status", "put", "status", "survey", "start"]
    assert up["d2"][-1] == "status+probe"
    assert status["d2"] == ["status+probe"]
    assert down["d2"] == ["status", "stop", "prove", "forget"]
    # The first node has the lock and, like the two behind it, the plan.
    assert status["r1"] == ["kept", "status+probe", "holder"]
    assert Counter(up["r1"])["lock"] == Counter(up["r1"])["unlock"] == 1
