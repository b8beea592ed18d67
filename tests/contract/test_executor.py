"""What every executor must do, whatever stands between it and its nodes."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace

import pytest

from pdctl.executors.calls import (
    CommandEnded,
    ForgetOutcome,
    LogQuery,
    NodeCommand,
    OutputLine,
    PortQuery,
    ProbeRequest,
)
from pdctl.state.lock import Acquired, Held, Owner, this_owner
from pdctl.state.observed import Phase


def _wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not is_true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def _phase(bench, process_id: str) -> Phase | None:
    found = bench.executor.observe("demo").process(process_id)
    return found and found.phase


def test_nothing_is_observed_of_a_deployment_that_never_was(bench):
    observed = bench.executor.observe("never")
    assert (observed.processes, observed.unreachable) == ((), ())
    assert bench.executor.deployments() == ()
    assert bench.executor.holder("never") is None
    assert bench.executor.forget("never") == ForgetOutcome()


def test_a_started_process_is_observed_as_it_was_started(bench):
    process = bench.process("decode-0.0", "sleep", "100", env={"A": "1"}, node=1)
    outcome = bench.start(process)
    (found,) = bench.executor.observe("demo").processes
    assert (outcome.error, outcome.pid) == (None, found.pid)
    assert (found.id, found.node, found.phase) == ("decode-0.0", bench.nodes[1], Phase.STARTING)
    assert (found.digest, found.argv, dict(found.env), found.grace_s) == (
        "d1",
        ("sleep", "100"),
        {"A": "1"},
        5.0,
    )
    assert found.is_supervised
    assert found.rss_bytes
    assert bench.executor.deployments() == ("demo",)


def test_another_operator_sees_and_stops_the_same(bench):
    """Nothing is remembered: the operator who started it may be gone."""
    bench.start(bench.process("decode-0.0", "sleep", "100"))
    other = bench.fresh()
    (outcome,) = other.stop("demo", other.observe("demo").processes)
    assert (outcome.was_alive, outcome.error, outcome.survivors) == (True, None, ())
    assert _phase(bench, "decode-0.0") is Phase.EXITED


def test_starting_what_runs_already_with_the_same_digest_is_no_fault(bench):
    process = bench.process("decode-0.0", "sleep", "100")
    first, again = bench.start(process), bench.start(process)
    assert (again.error, again.pid) == (None, first.pid)


def test_starting_beside_another_digest_is_refused(bench):
    bench.start(bench.process("decode-0.0", "sleep", "100"))
    assert (
        bench.start(bench.process("decode-0.0", "sleep", "100", digest="d2")).error == "it is already running"
    )


def test_a_program_that_the_node_lacks_is_an_outcome(bench):
    outcome = bench.start(bench.process("decode-0.0", "/no/such/program"))
    assert outcome.error == "cannot execute `/no/such/program`: No such file or directory"
    (found,) = bench.executor.observe("demo").processes
    assert (found.phase, found.exit_code) == (Phase.FAILED, 127)


@pytest.mark.parametrize(
    ("program", "phase", "reason"),
    [
        ("exit 0", Phase.EXITED, "exit code 0"),
        ("exit 3", Phase.FAILED, "exit code 3"),
        ("kill -9 $$", Phase.FAILED, "ended by signal 9 (SIGKILL)"),
    ],
)
def test_how_it_ended_decides_the_phase(bench, program, phase, reason):
    bench.start(bench.process("decode-0.0", "sh", "-c", program))
    _wait_until(lambda: not bench.executor.observe("demo").processes[0].phase.is_alive)
    (found,) = bench.executor.observe("demo").processes
    assert (found.phase, found.reason) == (phase, reason)


def test_a_stopped_process_has_not_failed(bench):
    bench.start(bench.process("decode-0.0", "sleep", "100"))
    bench.stop_all()
    (found,) = bench.executor.observe("demo").processes
    assert (found.phase, found.reason, found.num_alive) == (Phase.EXITED, "stopped", 0)


def test_outcomes_of_a_stop_come_in_the_order_asked(bench):
    for number, node in enumerate((1, 0, 1)):
        bench.start(bench.process(f"decode-{number}.0", "sleep", "100", node=node))
    found = bench.executor.observe("demo").processes
    asked = (found[2], found[0], found[1])
    outcomes = bench.executor.stop("demo", asked)
    assert [outcome.process_id for outcome in outcomes] == [process.id for process in asked]
    assert bench.executor.stop("demo", ()) == ()


def test_forget_removes_what_has_ended_and_tells_what_lives(bench):
    bench.start(bench.process("decode-0.0", "sleep", "100"))
    bench.start(bench.process("decode-1.0", "sleep", "100"))
    found = bench.executor.observe("demo")
    bench.executor.stop("demo", [found.process("decode-0.0")])
    assert bench.executor.forget("demo").kept == ("decode-1.0",)
    assert [process.id for process in bench.executor.observe("demo").processes] == ["decode-1.0"]
    bench.stop_all()
    assert bench.executor.forget("demo") == ForgetOutcome()
    assert bench.executor.deployments() == ()


def test_logs_of_several_processes(bench):
    for number in (0, 1):
        program = f"echo first {number}; echo last {number} >&2"
        bench.start(bench.process(f"decode-{number}.0", "sh", "-c", program, node=number))
    _wait_until(lambda: all(not each.phase.is_alive for each in bench.executor.observe("demo").processes))
    node_of = {f"decode-{number}.0": bench.nodes[number] for number in (0, 1)}
    with closing(bench.executor.logs(LogQuery(deployment="demo", node_of=node_of, tail=1))) as stream:
        found = {line.process_id: line.text for line in stream}
    assert found == {"decode-0.0": "last 0", "decode-1.0": "last 1"}


def test_followed_logs_come_as_written_until_closed_from_another_thread(bench):
    bench.start(bench.process("decode-0.0", "sh", "-c", "echo one; sleep 0.3; echo two; sleep 100"))
    query = LogQuery(deployment="demo", node_of={"decode-0.0": bench.nodes[0]}, tail=None, follow=True)
    stream = bench.executor.logs(query)
    lines = iter(stream)
    assert [next(lines).text, next(lines).text] == ["one", "two"]
    threading.Timer(0.2, stream.close).start()
    assert list(lines) == []


def test_a_command_streams_its_output_and_its_end(bench):
    program = "import os, sys; print(os.environ['A']); print('oh', file=sys.stderr); sys.exit(3)"
    command = NodeCommand(node=bench.nodes[0], argv=(sys.executable, "-c", program), env={"A": "it's $HOME"})
    with closing(bench.executor.run(command)) as output:
        items = list(output)
    assert items[-1] == CommandEnded(exit_code=3)
    assert set(items[:-1]) == {OutputLine(text="it's $HOME"), OutputLine(text="oh", is_error=True)}


def _end(bench, *argv: str) -> CommandEnded:
    with closing(bench.executor.run(NodeCommand(node=bench.nodes[0], argv=argv))) as output:
        return list(output)[-1]


def test_a_closed_command_does_not_live_on(bench):
    output = bench.executor.run(NodeCommand(node=bench.nodes[0], argv=("sh", "-c", "echo $$; sleep 100")))
    items = iter(output)
    pid = next(items).text
    assert _end(bench, "kill", "-0", pid) == CommandEnded(exit_code=0)
    output.close()
    _wait_until(lambda: _end(bench, "kill", "-0", pid) != CommandEnded(exit_code=0))


def test_the_plan_in_force_is_kept_until_nothing_is_left(bench):
    assert bench.executor.kept_plan("demo") is None
    bench.executor.keep_plan("demo", b"old")
    bench.executor.keep_plan("demo", '{"ü": 1}\n'.encode())
    bench.start(bench.process("decode-0.0", "sleep", "100"))
    assert bench.executor.forget("demo").kept == ("decode-0.0",)
    assert bench.fresh().kept_plan("demo") == '{"ü": 1}\n'.encode()
    bench.stop_all()
    bench.executor.forget("demo")
    assert bench.executor.kept_plan("demo") is None


def test_probes_and_ports_are_answered_by_the_node_in_order(bench):
    server = (
        "from http.server import *\n"
        "class Server(BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_response(200); self.end_headers(); self.wfile.write(b'hello')\n"
        "server = HTTPServer(('127.0.0.1', 0), Server); print(server.server_port, flush=True)\n"
        "server.serve_forever()"
    )
    bench.start(bench.process("decode-0.0", sys.executable, "-c", server))
    query = LogQuery(deployment="demo", node_of={"decode-0.0": bench.nodes[0]}, tail=1, follow=True)
    with closing(bench.executor.logs(query)) as stream:
        port = int(next(iter(stream)).text)
    good = ProbeRequest(node=bench.nodes[0], url=f"http://127.0.0.1:{port}/health")
    bad = replace(good, node=bench.nodes[1], url="http://127.0.0.1:1/")
    refused, served = bench.executor.probe([bad, good])
    assert (refused.status, refused.error) == (None, "connection refused")
    assert (served.status, served.body, served.error) == (200, "hello", None)
    (taken,) = bench.executor.ports([PortQuery(node=bench.nodes[0], host="127.0.0.1", port=port)])
    assert (taken.problem, taken.process) == ("taken", "demo/decode-0.0")
    bench.stop_all()
    (free,) = bench.executor.ports([PortQuery(node=bench.nodes[0], host="127.0.0.1", port=port)])
    assert free.problem is None


def _dead(owner: Owner) -> Owner:
    """The same operator's process, as if it had been killed and its pid used again."""
    return replace(owner, token="dead", start_ticks=owner.start_ticks - 1)


def test_a_lock_is_held_until_given_back(bench):
    first, second = this_owner("up"), this_owner("down")
    assert bench.executor.lock("demo", first) == Acquired()
    assert bench.fresh().lock("demo", second) == Held(holder=first)
    assert bench.executor.holder("demo") == first
    bench.executor.unlock("demo", second)  # not theirs: no effect
    assert bench.executor.holder("demo") == first
    bench.executor.unlock("demo", first)
    bench.executor.unlock("demo", first)
    assert bench.executor.lock("demo", second) == Acquired()
    bench.executor.unlock("demo", second)


def test_a_dead_owners_lock_is_taken_over_and_said(bench):
    dead, living = _dead(this_owner("up")), this_owner("down")
    bench.executor.lock("demo", dead)
    assert bench.executor.holder("demo") is None
    assert bench.executor.lock("demo", living) == Acquired(dead_owner=dead)
    bench.executor.unlock("demo", living)


def test_ten_operators_never_hold_the_lock_at_once(bench):
    """A dead owner's lock to begin with, so that the take-over races too."""
    bench.executor.lock("demo", _dead(this_owner("up")))
    inside, most, turns = [], [0], []

    def operate(number: int) -> None:
        executor, owner = bench.fresh(), this_owner("up")
        while isinstance(executor.lock("demo", owner), Held):
            time.sleep(
                0.1
            )  # an attempt costs a process on the node, of which ten at once cost everybody time
        inside.append(number)
        most[0] = max(most[0], len(inside))
        turns.append(number)
        inside.remove(number)
        executor.unlock("demo", owner)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(operate, range(10)))
    assert (most[0], sorted(turns)) == (1, list(range(10)))
    assert bench.executor.deployments() == ()
