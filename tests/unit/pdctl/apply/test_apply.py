"""The order of a change, and what is looked at before anything is touched."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pdctl.apply.apply import Change, apply
from pdctl.apply.canary import run_canary
from pdctl.apply.rollout import RolloutOptions
from pdctl.compiler import compile_plan
from pdctl.diagnostics import DiagnosticError
from pdctl.events import Preparing, Verified
from pdctl.executors.calls import (
    CommandEnded,
    OutputLine,
    PortAnswer,
    PortQuery,
    ProbeAnswer,
    StopOutcome,
    Survivor,
)
from pdctl.reconcile.reconcile import reconcile
from pdctl.state.observed import ObservedState
from pdctl.topology.model import Model


@pytest.fixture
def bring(cluster, sink, clock):
    """Make `plan` true on the scripted cluster."""

    def run(plan, observed=None, ports=()):
        observed = observed or cluster.observe(plan.name)
        change = Change(plan=plan, observed=observed, changes=reconcile(plan, observed))
        apply(
            change,
            cluster,
            sink=sink,
            clock=clock,
            options=RolloutOptions(),
            commit=lambda: cluster.calls.append("commit"),
            ports=ports,
        )

    return run


def taken(port: int, **holder) -> PortAnswer:
    return PortAnswer(query=PortQuery(node="n1", host="10.0.0.1", port=port), problem="taken", **holder)


def test_ports_that_somebody_has_just_asked_for_are_not_asked_again(plan, cluster, bring):
    claims = [(process, claim) for process in plan.processes for claim in process.ports]
    known = [
        PortAnswer(query=PortQuery(node=process.node, host=process.listen, port=claim.port))
        for process, claim in claims
    ]
    bring(plan, ports=known[:-1])
    assert cluster.asked_ports == [claims[-1][1].port]


def test_a_port_that_was_found_taken_before_stops_everything(plan, cluster, bring):
    (process, claim) = next((each, claim) for each in plan.processes for claim in each.ports)
    query = PortQuery(node=process.node, host=process.listen, port=claim.port)
    with pytest.raises(DiagnosticError, match="PD410"):
        bring(plan, ports=[PortAnswer(query=query, problem="taken")])
    assert "commit" not in cluster.calls


def test_a_port_of_a_stranger_stops_everything_before_it_begins(plan, cluster, bring):
    cluster.taken = {30000: taken(30000, pid=77, command="nginx"), 8000: taken(8000)}
    with pytest.raises(DiagnosticError) as raised:
        bring(plan)
    assert [(each.code, each.message) for each in raised.value.diagnostics] == [
        ("PD410", "port 30000 on `n1` is taken by process 77 (`nginx`)"),
        ("PD410", "port 8000 on `n1` is taken by another process"),
    ]
    assert raised.value.diagnostics[0].help is not None
    assert "--set prefill.port=NUMBER" in raised.value.diagnostics[0].help
    assert cluster.calls == []


def test_a_port_of_another_deployment_names_it(plan, cluster, bring):
    cluster.taken = {30000: taken(30000, pid=77, process="other/prefill-0.0")}
    with pytest.raises(DiagnosticError) as raised:
        bring(plan)
    (fault,) = raised.value.diagnostics
    assert fault.message == "port 30000 on `n1` is taken by `other/prefill-0.0` of pdctl"
    assert fault.help == (
        "`pdctl down other`, with the `PDCTL_STATE_DIR` that it was started with, or choose other ports"
    )


def test_a_port_of_a_process_that_is_about_to_stop_counts_as_free(plan, cluster, bring):
    bring(plan)
    cluster.taken = {30000: taken(30000, pid=77, process="test/prefill-0.0")}
    bring(plan)  # the scripted digests differ, so everything is replaced
    assert cluster.calls[4:] == [
        "commit",
        "stop prefill-0.0 decode-0.0",
        "start prefill-0.0",
        "start decode-0.0",
        "stop router-0.0",
        "start router-0.0",
    ]


def test_a_router_serves_on_when_an_engine_behind_its_successor_fails(plan, cluster, bring, script):
    bring(plan)
    cluster.scripts = {"decode-0.0": script(ready_after_s=None, ends_after_s=0.5)}
    with pytest.raises(DiagnosticError, match="PD602"):
        bring(plan)
    assert "stop router-0.0" not in cluster.calls
    assert "router-0.0" in cluster.started


def test_an_instance_that_leaves_goes_after_the_router_that_sent_there(
    plan, cluster, bring, make_topology, make_inventory, reference_programs
):
    larger = compile_plan(make_topology(decode={"instances": 2}), make_inventory(1), reference_programs)
    bring(larger)
    cluster.calls.clear()
    observed = replace(
        cluster.observe(plan.name),
        processes=tuple(
            replace(each, digest=planned.digest) if (planned := plan.process(each.id)) else each
            for each in cluster.observe(plan.name).processes
            if each.id != "router-0.0"
        )
        + tuple(each for each in cluster.observe(plan.name).processes if each.id == "router-0.0"),
    )
    bring(plan, observed)
    assert cluster.calls == ["commit", "stop router-0.0", "start router-0.0", "stop decode-1.0"]


def test_the_plan_in_force_stays_when_a_change_is_refused_before_it_begins(plan, cluster, bring):
    cluster.taken = {8000: taken(8000)}
    with pytest.raises(DiagnosticError):
        bring(plan)
    assert "commit" not in cluster.calls


def test_a_process_that_can_not_be_killed_stops_the_change(plan, cluster, bring):
    bring(plan)
    stuck = Survivor(pid=9, command="python", state="D")
    cluster.survivors = {"decode-0.0": StopOutcome(process_id="decode-0.0", survivors=(stuck,))}
    with pytest.raises(DiagnosticError) as raised:
        bring(plan)
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD605"
    assert fault.message == "`decode-0.0` could not be stopped: 9 (`python`, state D) still lives"


@pytest.fixture
def builtin_plan(make_topology, make_inventory, reference_programs):
    topology = make_topology(model=Model(path="builtin:tiny"))
    return compile_plan(topology, make_inventory(1), reference_programs)


def said(**fields) -> OutputLine:
    return OutputLine(text=json.dumps(fields))


def test_a_model_is_fetched_once_per_node_with_its_progress(builtin_plan, cluster, sink, bring):
    cluster.outputs = {
        "json": (
            said(event="progress", name="tiny", received_bytes=5, total_bytes=10),
            OutputLine(text="not of the protocol"),
            said(event="waiting"),
            CommandEnded(exit_code=0),
        )
    }
    bring(builtin_plan)
    assert cluster.calls[:2] == ["run json on n1", "commit"]
    assert [call for call in cluster.calls if call.startswith("run")] == ["run json on n1"]
    progress = [event for event in sink.events if isinstance(event, Preparing)]
    assert [(event.text, event.received_bytes) for event in progress] == [
        ("fetching tiny", 5),
        ("waiting for another fetch of the same file", None),
    ]


def test_a_failed_fetch_is_told_in_its_own_words_and_nothing_starts(builtin_plan, cluster, bring):
    cluster.outputs = {
        "json": (said(event="error", message="no network", hint="copy it"), CommandEnded(exit_code=1))
    }
    with pytest.raises(DiagnosticError) as raised:
        bring(builtin_plan)
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message, fault.help) == ("PD604", "no network", "copy it")
    assert cluster.calls == ["run json on n1"]


def test_a_preparation_that_says_nothing_is_told_by_its_last_lines(builtin_plan, cluster, bring):
    cluster.outputs = {"json": (OutputLine(text="boom", is_error=True), CommandEnded(signal=9))}
    with pytest.raises(DiagnosticError) as raised:
        bring(builtin_plan)
    (fault,) = raised.value.diagnostics
    assert fault.message == "preparing n1 failed with signal 9"
    assert fault.excerpts[0].lines == ("boom",)


def test_the_canary_shows_what_the_model_said(plan, cluster, sink, clock):
    cluster.canary = [ProbeAnswer(status=200, body='{"text": " Paris."}')]
    run_canary(plan, cluster, sink=sink, clock=clock)
    assert [event.text for event in sink.events if isinstance(event, Verified)] == [" Paris."]


def test_the_canary_is_patient_with_a_router_that_has_no_workers_yet(plan, cluster, sink, clock):
    cluster.canary = [ProbeAnswer(status=503), ProbeAnswer(status=200, body='{"text": "x"}')]
    run_canary(plan, cluster, sink=sink, clock=clock)
    assert cluster.canary == []


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (ProbeAnswer(status=500, body="boom"), "HTTP 500: boom"),
        (ProbeAnswer(error="connection refused"), "connection refused"),
        (ProbeAnswer(status=200, body="no json"), "HTTP 200: no json"),
    ],
)
def test_a_canary_that_fails_says_what_came_back(plan, cluster, sink, clock, answer, message):
    cluster.canary = [answer]
    with pytest.raises(DiagnosticError) as raised:
        run_canary(plan, cluster, sink=sink, clock=clock)
    (fault,) = raised.value.diagnostics
    assert fault.message == f"the deployment is up, but a request through its router failed: {message}"


def test_nothing_is_asked_of_the_nodes_when_nothing_is_to_start(plan, cluster, sink, clock):
    observed = ObservedState(deployment=plan.name)
    change = Change(plan=plan, observed=observed, changes=reconcile(plan, observed))
    apply(
        change,
        cluster,
        sink=sink,
        clock=clock,
        options=RolloutOptions(wait=False),
        commit=lambda: None,
    )
    assert [call.split()[0] for call in cluster.calls] == ["start"] * 3
