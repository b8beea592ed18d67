"""What of `transfer` reaches the reference engine's command line and environment."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.plan.model import ProcessSpec
from pdctl.rules import check
from pdctl.topology.load import load_text

_HEAD = """\
schema: pdctl/v1
name: demo
model: {path: /models/demo, attention: gqa}
engine: {kind: reference}
cluster:
  executor: ssh
  devices_per_node: 8
  nodes: [{name: n1, address: 10.0.0.1}, {name: n2, address: 10.0.0.2}]
prefill: {on: [n1], parallel: {tp: 2}, instances: 2}
decode: {on: [n2]}
"""


@pytest.fixture
def process() -> Callable[[str, str], ProcessSpec]:
    """`process(transfer, "decode-0.0")`: one process of a valid topology with these transfer settings."""

    def of(transfer: str, process_id: str) -> ProcessSpec:
        topology = load_text(f"{_HEAD}transfer: {transfer}\n").require()
        topology, _ = with_facts(topology)
        assert [each.code for each in check(topology)] == []
        engine = plugins.program("engines", "reference")
        router = plugins.program("routers", topology.router.kind)
        assert engine is not None
        assert router is not None
        plan = compile_plan(topology, declared(topology.cluster), Programs(engine=engine, router=router))
        found = plan.process(process_id)
        assert found is not None
        return found

    return of


def _value(process: ProcessSpec, flag: str) -> str | None:
    return process.argv[process.argv.index(flag) + 1] if flag in process.argv else None


def test_each_node_gets_its_own_rdma_devices(process):
    transfer = "{backend: mooncake, ib_devices: {per_node: {n1: [mlx5_0, mlx5_1], n2: [mlx5_7]}}}"
    assert _value(process(transfer, "prefill-0.0"), "--disaggregation-ib-device") == "mlx5_0,mlx5_1"
    assert _value(process(transfer, "decode-0.0"), "--disaggregation-ib-device") == "mlx5_7"
    transfer = "{backend: mooncake, ib_devices: {per_node: {n1: [mlx5_0]}}}"
    assert _value(process(transfer, "decode-0.0"), "--disaggregation-ib-device") is None
    assert _value(process("{backend: mooncake}", "decode-0.0"), "--disaggregation-ib-device") is None


def test_ranks_over_ascend_see_the_npus_of_their_instance(process):
    second = process("{backend: ascend, ascend: {protocol: device_rdma}}", "prefill-1.0")
    assert _value(second, "--disaggregation-transfer-backend") == "ascend"
    assert _value(second, "--ascend-protocol") == "device_rdma"
    assert second.env["ASCEND_RT_VISIBLE_DEVICES"] == "2,3"
    assert "ASCEND_RT_VISIBLE_DEVICES" not in process("{backend: tcp}", "prefill-1.0").env


def test_threads_queues_plugin_and_staging_are_passed_on(process):
    transfer = "{backend: nixl, threads: 8, queues: 2, nixl: {plugin: LIBFABRIC}, staging: off}"
    decode = process(transfer, "decode-0.0")
    flags = ("--transfer-threads", "--transfer-queues", "--nixl-plugin", "--staging")
    assert [_value(decode, flag) for flag in flags] == ["8", "2", "LIBFABRIC", "off"]


def test_of_the_token_the_command_line_has_only_where_it_lies(process):
    transfer = "{backend: tcp, bootstrap_token_file: /etc/pdctl/bootstrap-token}"
    for process_id in ("prefill-0.0", "decode-0.0"):
        flag = _value(process(transfer, process_id), "--bootstrap-token-file")
        assert flag == "/etc/pdctl/bootstrap-token"
