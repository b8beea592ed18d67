"""Command lines of SGLang's processes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.plan.argv import flags_of
from pdctl.plan.model import LaunchPlan, ProcessSpec

Process = Callable[..., ProcessSpec]
WIDE = "decode: {nodes: 2, parallel: {tp: 16, attn_dp: 8}}\n"


def test_a_small_prefill_has_this_command(process: Process) -> None:
    spec = process("prefill: {parallel: {tp: 2}}\n", "prefill-0.0", attention="mla")
    assert " ".join(spec.argv) == (
        "python3 -m sglang.launch_server --model-path /models/demo --host 10.0.0.1 --port 30000"
        " --tp-size 2 --nccl-port 21000 --disaggregation-mode prefill"
        " --disaggregation-transfer-backend mooncake --disaggregation-bootstrap-port 8998"
    )
    assert spec.env == {"CUDA_VISIBLE_DEVICES": "0,1", "SGLANG_HOST_IP": "10.0.0.1"}


def test_decode_has_no_bootstrap_port(process: Process) -> None:
    assert "disaggregation-bootstrap-port" not in flags_of(process("", "decode-0.0").argv)


def test_every_rank_of_prefill_has_the_leaders_bootstrap_port(process: Process) -> None:
    lines = "prefill: {nodes: 2, bootstrap_port: 9100, parallel: {tp: 16}}\n"
    for rank in (0, 1):
        flags = flags_of(process(lines, f"prefill-0.{rank}").argv)
        assert flags["disaggregation-bootstrap-port"] == ("9100",)


def test_ranks_differ_in_address_and_rank_alone(process: Process) -> None:
    leader, follower = (process(WIDE, f"decode-0.{rank}") for rank in (0, 1))
    assert [
        (mine, other) for mine, other in zip(leader.argv, follower.argv, strict=True) if mine != other
    ] == [("10.0.0.2", "10.0.0.3"), ("0", "1")]
    flags = flags_of(leader.argv)
    assert flags["dist-init-addr"] == ("10.0.0.2:20000",)
    assert flags["nnodes"] == ("2",)
    assert "nccl-port" not in flags


def test_only_the_leader_is_asked_whether_it_serves(process: Process) -> None:
    leader = process(WIDE, "decode-0.0")
    assert leader.ready is not None
    assert leader.ready.url == "http://10.0.0.2:30100/health"
    assert process(WIDE, "decode-0.1").ready is None


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("0.5.9", "--dp-size 4 --enable-dp-attention"),
        ("0.5.21", "--dp-size 4 --enable-dp-attention"),
        ("0.5.22", "--attn-dp-size 4"),
        ("0.5.23.post1", "--attn-dp-size 4"),
        ("main", "--attn-dp-size 4"),
    ],
)
def test_attention_dp_is_spelled_as_the_release_does(process: Process, version: str, words: str) -> None:
    spec = process("decode: {parallel: {tp: 4, attn_dp: 4}}\n", "decode-0.0", version=version)
    assert f" --tp-size 4 {words} --nccl-port" in " ".join(spec.argv)


@pytest.mark.parametrize(
    ("version", "word"),
    [("0.5.12.post1", "--cuda-graph-max-bs"), ("0.5.17", "--cuda-graph-max-bs-decode")],
)
def test_graph_flags_are_spelled_as_the_release_does(process: Process, version: str, word: str) -> None:
    spec = process("decode: {args: {cuda-graph-max-bs-decode: 64}}\n", "decode-0.0", version=version)
    assert spec.argv[-2:] == (word, "64")


def test_copies_behind_one_server_draw_their_nccl_ports(process: Process) -> None:
    spec = process("prefill: {parallel: {tp: 2, dp: 2}}\n", "prefill-0.0")
    flags = flags_of(spec.argv)
    assert flags["dp-size"] == ("2",)
    assert "nccl-port" not in flags
    assert len(spec.device_indices) == 4


def test_a_role_overrides_a_default_by_any_alias(process: Process) -> None:
    lines = "defaults: {args: {random-seed: 1, page-size: 64}}\nprefill: {args: {page-size: 16}}\n"
    flags = flags_of(process(lines, "prefill-0.0").argv)
    assert (flags["page-size"], flags["random-seed"]) == (("16",), ("1",))


def test_a_node_says_last_what_its_variables_are(process: Process) -> None:
    nodes = "{name: n1, address: 10.0.0.1, interface: bond0, env: {A: node}}"
    lines = "defaults: {env: {A: all, B: all}}\nprefill: {env: {A: role, NCCL_SOCKET_IFNAME: eth9}}\n"
    env = process(lines, "prefill-0.0", nodes=nodes).env
    assert (env["A"], env["B"]) == ("node", "all")
    assert (env["NCCL_SOCKET_IFNAME"], env["GLOO_SOCKET_IFNAME"]) == ("eth9", "bond0")


def test_a_node_that_is_known_by_name_listens_on_all_its_addresses(process: Process) -> None:
    spec = process("", "prefill-0.0", nodes="{name: gpu-1}")
    assert flags_of(spec.argv)["host"] == ("0.0.0.0",)
    assert "SGLANG_HOST_IP" not in spec.env
    assert spec.ready is not None
    assert spec.ready.host == "gpu-1"


def test_kv_events_go_out_on_planned_ports(plan: Callable[..., LaunchPlan]) -> None:
    lines = "decode: {instances: 2, kv_events_port: 5560, parallel: {tp: 2, attn_dp: 2}}\n"
    argvs = [each.argv for each in plan(lines).processes if each.role == "decode"]
    assert [flags_of(argv)["kv-events-config"][0].rpartition(":")[2] for argv in argvs] == [
        '5560"}',
        '5562"}',
    ]
