"""What nodes run before processes start, on many of them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pdctl.apply.prepare import prepare_nodes
from pdctl.diagnostics import DiagnosticError
from pdctl.executors.calls import CommandEnded, OutputLine


def _needing(plan, *words, nodes, env=None):
    """A process of the plan on each node, each with the same thing to run first."""
    process = plan.processes[0]
    return [replace(process, node=node, prepare=words, env=env or {}) for node in nodes]


def test_a_failure_that_many_nodes_have_is_told_once_and_another_for_itself(plan, cluster, sink):
    error = json.dumps({"event": "error", "message": "no network", "hint": "copy it"})
    cluster.outputs = {
        "pull": (OutputLine(text=error), CommandEnded(exit_code=1)),
        "other": (OutputLine(text="boom"), CommandEnded(exit_code=3)),
    }
    processes = [
        *_needing(plan, "pull", nodes=("n01", "n02", "n03")),
        *_needing(plan, "other", nodes=("m1",)),
    ]
    with pytest.raises(DiagnosticError) as raised:
        prepare_nodes(processes, cluster, sink)
    assert [(each.message, *each.notes) for each in raised.value.diagnostics] == [
        ("no network", "n[01-03] ran `pull`"),
        ("preparing m1 failed with exit code 3", "m1 ran `other`"),
    ]


def test_each_node_runs_a_command_once_in_the_environment_of_who_needs_it(plan, cluster, sink):
    cluster.outputs = {"pull": (CommandEnded(exit_code=0),)}
    env = {"PDCTL_CACHE_DIR": "/scratch"}
    processes = _needing(plan, "pull", nodes=("n1", "n1", "n2"), env=env)
    prepare_nodes([*processes, replace(processes[0], prepare=())], cluster, sink)
    assert sorted((each.node, each.env) for each in cluster.commands) == [("n1", env), ("n2", env)]
