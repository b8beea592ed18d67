"""The loader as a whole."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError, has_errors
from pdctl.resources import resource_path
from pdctl.topology.compose import compose
from pdctl.topology.load import Loaded, load, load_text
from pdctl.topology.model import Engine, Host, Model, Parallel, Role, Router, Topology, Transfer
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Value, flatten

Faults = Callable[[str | bytes], list[str]]

EVERYTHING = """\
schema: pdctl/v1
name: all
model: {path: /models/x, served_name: x}
engine: {kind: reference, version: "1.10", python: /opt/python}
cluster:
  executor: local
  nodes: [{name: a, address: 10.0.0.1, devices: 4}, {name: b}]
  devices_per_node: 8
transfer: {backend: tcp, bootstrap_timeout_s: 30, verify_kv: true}
defaults: {args: {page-size: 16}, env: {A: "1"}}
prefill:
  instances: 2
  nodes: 2
  devices: 8
  parallel: {tp: 4, attn_dp: 2, ep: 4, pp: 2}
  on: [a, b]
  port: 31000
  bootstrap_port: 9000
  args: {trace: true, sizes: [1, 2], none: ~, x-y: z}
decode: {}
router: {kind: sglang_router, policy: random, host: "::", on: b}
health: {ready_deadline_s: 60, stop_grace_s: 0, canary: false}
"""


def test_every_field_arrives() -> None:
    topology = load_text(EVERYTHING).require()
    assert topology.model == Model(path="/models/x", served_name="x")
    assert topology.engine == Engine(kind="reference", version="1.10", python="/opt/python")
    assert topology.cluster.nodes == (Host(name="a", address="10.0.0.1", devices=4), Host(name="b"))
    assert topology.cluster.devices_per_node == 8
    assert topology.transfer == Transfer(backend="tcp", bootstrap_timeout_s=30.0, verify_kv=True)
    assert (topology.defaults.args, topology.defaults.env) == ({"page-size": 16}, {"A": "1"})
    assert topology.prefill == Role(
        name="prefill",
        instances=2,
        nodes=2,
        devices=8,
        parallel=Parallel(tp=4, attn_dp=2, ep=4, pp=2),
        on=("a", "b"),
        port=31000,
        bootstrap_port=9000,
        args={"trace": True, "sizes": (1, 2), "none": None},
    )
    assert topology.decode == Role(name="decode")
    assert topology.router == Router(kind="sglang_router", policy="random", host="::", on="b")
    assert (topology.health.ready_deadline_s, topology.health.stop_grace_s, topology.health.canary) == (
        60,
        0,
        False,
    )


def test_a_float_without_a_fraction_is_a_whole_number(document: str) -> None:
    instances = load_text(document.replace("instances: 2", "instances: 2.0")).require().decode.instances
    assert (instances, type(instances)) == (2, int)


def test_require_raises_every_diagnostic(document: str) -> None:
    with pytest.raises(DiagnosticError) as caught:
        load_text(document.replace("instances", "instance")).require()
    assert len(caught.value.diagnostics) == 2


def test_a_topology_knows_where_its_parts_stand(document: str, tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    path.write_text(document)
    span = load(str(path), environ={}).require().source.value("decode", "instances")
    assert span is not None
    assert (span.file, span.line, span.column, span.text) == (str(path), 6, 21, "decode: {instances: 2}")


def test_environment_uses_are_handed_out(document: str) -> None:
    loaded = load_text(document + "router: \n  host: ${HOST:-127.0.0.1}\n", environ={})
    assert loaded.require().router.host == "127.0.0.1"
    assert [(use.name, use.value) for use in loaded.environment] == [("HOST", None)]


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_byte_order_mark_make_no_difference(
    document: str, faults: Faults, line_end: str, mark: str
) -> None:
    text = mark + document.replace("instances: 2", "instances: x").replace("\n", line_end)
    assert faults(text) == ["PD123 6:21 `decode.instances` must be a whole number, found the text `x`"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["PD108 `<text>` is empty"]),
        ("  \n", ["PD108 `<text>` is empty"]),
        ("# c\n", ["PD108 1:1 `<text>` holds only comments"]),
        ("null\n", ["PD108 1:1 `<text>` holds only comments"]),
        ("- a\n", ["PD109 1:1 a topology is a mapping of keys, found a list"]),
        ("word\n", ["PD109 1:1 a topology is a mapping of keys, found one value"]),
    ],
)
def test_documents_that_are_no_topology(faults: Faults, text: str, expected: list[str]) -> None:
    assert faults(text) == expected


def test_faults_of_yaml_and_of_the_schema_come_together(document: str, faults: Faults) -> None:
    assert faults(document + "decode: {}\nhealht: {}\n") == [
        "PD110 7:1 `decode` stands twice in one mapping",
        "PD121 8:1 a topology has no key `healht`",
    ]


def test_one_mistake_is_reported_once(document: str, faults: Faults) -> None:
    assert faults(document + "router: {port: !number 80}\n") == [
        "PD114 7:16 the tag `!number` has no meaning here"
    ]


def test_shipped_topologies_load_without_a_word() -> None:
    paths = sorted(resource_path("topologies").glob("*.yaml"))
    assert {"laptop_1p1d.yaml", "laptop_2p2d.yaml"} <= {path.name for path in paths}
    environ = {
        "SGLANG_MODEL": "/models/some",
        "SGLANG_PYTHON": "python3",
    }  # sglang_cpu_1p1d.yaml asks for them
    for path in paths:
        loaded = load(str(path), environ=environ)
        assert loaded.diagnostics == ()
        assert isinstance(loaded.topology, Topology)
        assert loaded.topology.name == path.stem.replace("_", "-")


def test_ten_times_the_hosts_take_about_ten_times_as_long(document: str) -> None:
    def seconds(num_hosts: int) -> float:
        hosts = "".join(f"    - {{name: n{index}, address: 10.0.0.1}}\n" for index in range(num_hosts))
        started = time.process_time()
        loaded = load_text(document + "cluster:\n  nodes:\n" + hosts)
        assert loaded.topology is not None
        return time.process_time() - started

    seconds(10)  # imports
    small = min(seconds(200) for _ in range(3))
    assert seconds(2000) < 40 * small


def test_importing_the_loader_imports_no_heavy_library() -> None:
    program = "import sys, pdctl.topology.load; print(sorted({'yaml', 'jsonschema'} & set(sys.modules)))"
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    ).stdout
    assert output.strip() == "[]"


def test_loaded_without_topology_has_an_error() -> None:
    loaded: Loaded = load("/nonexistent/x.yaml", environ={})
    assert loaded.topology is None
    assert [each.code for each in loaded.diagnostics] == ["PD101"]


def test_an_unset_variable_is_the_only_fault_of_its_value(document: str, faults: Faults) -> None:
    assert faults(document + 'router: {port: "${PDCTL_TEST_NONE}"}\n') == [
        "PD115 7:17 the environment variable `PDCTL_TEST_NONE` is not set"
    ]


def test_an_escaped_reference_is_a_value_like_any_other(document: str, faults: Faults) -> None:
    assert faults(document + 'router: {port: "$${X}"}\n') == [
        "PD123 7:16 `router.port` must be a whole number, found the text `${X}`"
    ]


ODD_VALUES: tuple[Value, ...] = (
    None,
    -1,
    2**70,
    1.5,
    "",
    "two words",
    "line\nbreak",
    "${PDCTL_TEST_NONE}",
    "x" * 300,
    True,
    [],
    [None],
    [[1]],
    {},
    {"a": {"b": 1}},
)


def test_any_value_in_any_place_gives_a_topology_or_an_error_at_a_place() -> None:
    tree = compose(SourceText(file="f", text=EVERYTHING)).tree
    assert tree is not None
    flat = flatten(tree)
    for path in [path for path in flat.source.values if path]:
        for odd in ODD_VALUES:
            loaded = load_text(json.dumps(with_value(flat.value, path, odd)))
            assert (loaded.topology is None) == has_errors(loaded.diagnostics), (path, odd)
            for fault in loaded.diagnostics:
                assert fault.span is not None
                assert "\n" not in fault.message


def with_value(value: Value, path: tuple[str | int, ...], odd: Value) -> Value:
    if not path:
        return odd
    if isinstance(value, list):
        index = path[0]
        return [with_value(item, path[1:], odd) if at == index else item for at, item in enumerate(value)]
    assert isinstance(value, dict)
    return {key: with_value(item, path[1:], odd) if key == path[0] else item for key, item in value.items()}
