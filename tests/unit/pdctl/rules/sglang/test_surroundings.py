"""Variables, threads, ports, interfaces and the fabric."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from pdctl.resources import resource_path
from pdctl.rules.sglang.reading import NEWEST_READ

Said = Callable[..., list[str]]

ONE_NODE = "{executor: ssh, devices_per_node: 8}"


@pytest.mark.parametrize(
    ("variable", "version", "found"),
    [
        ("SGLANG_DISAGGREGATION_QUEUE_SIZE: '4'", "0.5.23", []),
        ("SGLANG_DISAGGREGATION_QEUE_SIZE: '4'", "0.5.23", ["warning PD290"]),
        ("SGL_ENABLE_JIT_DEEPGEMM: '1'", "0.5.23", []),  # the old prefix
        ("SGL_ENABLE_JIT_DEPGEMM: '1'", "0.5.23", ["warning PD290"]),
        ("SGLANG_DISAGG_STAGING_POOL_SIZE_MB: '64'", "0.5.9", ["warning PD290"]),  # not yet
        ("SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB: '64'", "0.5.12.post1", []),
        ("SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB: '64'", "0.5.17", ["warning PD291"]),
        ("SGLANG_ENABLE_SPEC_V2: '1'", "0.5.23", ["warning PD291"]),
        ("SGLANG_HACK_SEQ_BOOTSTRAP_ROOM: '1'", "0.5.9", ["warning PD291"]),
        ("MOONCAKE_CONFIG_PATH: x.json", "0.5.23", ["warning PD291"]),
        ("MC_FORCE_TCP: '0'", "0.5.23", ["warning PD292"]),
        ("MC_FORCE_TCP: '1'", "0.5.23", []),
        ("CUDA_VISIBLE_DEVICES: '0'", "0.5.23", ["error PD293"]),
        ("SGLANG_DISAGGREGATION_QUEUE_SIZE: four", "0.5.23", ["warning PD294"]),
        ("SGLANG_DISAGG_STAGING_BUFFER: maybe", "0.5.23", ["warning PD294"]),
        ("NCCL_DEBUG: INFO", "0.5.23", []),
        ("MY_OWN: '1'", "0.5.23", []),
    ],
)
def test_variables(said: Said, variable: str, version: str, found: list[str]) -> None:
    assert said(defaults=f"{{env: {{{variable}}}}}", version=version) == found


def test_variables_of_a_node_are_read_too(said: Said) -> None:
    node = "{name: a, address: 10.0.0.1, env: {SGLANG_NO_SUCH_THING_AT_ALL: '1'}}"
    assert said(cluster=f"{{executor: ssh, devices_per_node: 8, nodes: [{node}]}}") == ["warning PD290"]


def test_the_table_of_variables_ends_with_the_release_that_the_rules_know() -> None:
    table = json.loads(resource_path("schemas", "sglang", "env.json").read_text(encoding="utf-8"))
    assert table["versions"][-1] == NEWEST_READ
    assert all(
        line[0] in table["versions"] and line[1] in table["versions"] for line in table["names"].values()
    )


@pytest.mark.parametrize(
    ("transfer", "found"),
    [
        ("queues: 4", []),
        ("queues: 5", ["warning PD420"]),
        ("queues: 13", ["error PD420"]),
        ("queues: 13, threads: 13", []),
        ("queues: 4, threads: 2", ["error PD420"]),
    ],
)
def test_queues_have_threads(said: Said, transfer: str, found: list[str]) -> None:
    assert said(transfer=f"{{backend: mooncake, {transfer}}}") == found


def test_queues_are_mooncakes(said: Said) -> None:
    assert said(transfer="{backend: nixl, queues: 20}") == []


@pytest.mark.parametrize(("seconds", "found"), [(100000, []), (100000000, ["warning PD324"])])
def test_time_outs_that_never_end(said: Said, seconds: int, found: list[str]) -> None:
    assert said(decode=f'{{env: {{SGLANG_DISAGGREGATION_WAITING_TIMEOUT: "{seconds}"}}}}') == found


@pytest.mark.parametrize(
    ("nvlink", "cluster", "roles", "found"),
    [
        ("mnnvl", ONE_NODE, ("", ""), ["warning PD421"]),
        ("mnnvl", "{executor: ssh, nodes: 2, devices_per_node: 4}", ("", ""), []),
        ("intra_node", ONE_NODE, ("", ""), []),
        (
            "intra_node",
            "{executor: ssh, devices_per_node: 4, nodes: [{name: a}, {name: b}]}",
            ("on: [a]", "on: [b]"),
            ["error PD421"],
        ),
    ],
)
def test_nvlink(said: Said, nvlink: str, cluster: str, roles: tuple[str, str], found: list[str]) -> None:
    transfer = f"{{backend: mooncake, nvlink: {nvlink}}}"
    prefill, decode = (f"{{{role}}}" for role in roles)
    assert said(cluster=cluster, transfer=transfer, prefill=prefill, decode=decode) == found


@pytest.mark.parametrize(
    ("port", "found"),
    [
        (8998, []),
        (15500, ["warning PD422"]),
        (22000, ["warning PD422"]),
        (31000, []),
        (35399, ["warning PD422"]),
    ],
)
def test_ports_that_others_draw(said: Said, port: int, found: list[str]) -> None:
    assert said(prefill=f"{{bootstrap_port: {port}}}") == found


@pytest.mark.parametrize(
    ("env", "nodes", "found"),
    [
        ("GLOO_SOCKET_IFNAME: eth0", 2, []),
        ("GLOO_SOCKET_IFNAME: ^docker0", 1, ["error PD423"]),
        ("NCCL_SOCKET_IFNAME: ^docker0", 2, []),
        ("NCCL_SOCKET_IFNAME: lo", 1, []),
        ("NCCL_SOCKET_IFNAME: lo", 2, ["error PD423"]),
    ],
)
def test_interfaces(said: Said, env: str, nodes: int, found: list[str]) -> None:
    decode = f"{{nodes: {nodes}, parallel: {{tp: 2}}, env: {{{env}}}}}"
    assert said(model="{path: mine, attention: mla}", decode=decode) == found


@pytest.mark.parametrize(
    ("devices", "found"),
    [
        ("[mlx5_0]", []),
        ('{"0": [mlx5_0], "1": [mlx5_1]}', []),
        ('{"0": [mlx5_0]}', ["warning PD426"]),
        ('{per_node: {a: {"1": [mlx5_1]}}}', ["warning PD426"]),
    ],
)
def test_maps_of_rdma_devices(said: Said, devices: str, found: list[str]) -> None:
    cluster = "{executor: ssh, devices_per_node: 2, nodes: [{name: a}]}"
    assert said(cluster=cluster, transfer=f"{{backend: mooncake, ib_devices: {devices}}}") == found


@pytest.mark.parametrize(
    ("per_node", "found"),
    [
        ("{a: [x0, x1], b: [x0, x1]}", []),
        ("{a: [x0, x1], b: [y0, y1]}", []),  # other names for the same rails
        ("{a: [x0, x1], b: [x0]}", ["warning PD430"]),
        ("{a: [x0, x1]}", ["warning PD334"]),  # the backend finds those of b
        ("{a: [x0, x1], b: [x0, x1], z: [x0]}", ["error PD403"]),
    ],
)
def test_rails_of_both_roles(said: Said, per_node: str, found: list[str]) -> None:
    cluster = "{executor: ssh, devices_per_node: 8, nodes: [{name: a}, {name: b}]}"
    transfer = f"{{backend: mooncake, ib_devices: {{per_node: {per_node}}}}}"
    roles = {"prefill": "{on: [a]}", "decode": "{on: [b]}"}
    assert said(cluster=cluster, transfer=transfer, **roles) == found


WAITING = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT: '600'"


@pytest.mark.parametrize(
    ("prefill", "decode", "defaults", "found"),
    [
        (WAITING, "", "", ["warning PD432"]),
        (WAITING, WAITING, "", []),
        ("", WAITING, "", []),
        ("", "", WAITING, []),
        ("", "SGLANG_DISAGGREGATION_QUEUE_SIZE: '4'", "", ["warning PD432"]),
        ("SGLANG_DISAGGREGATION_QUEUE_SIZE: '4'", "", "", []),
    ],
)
def test_variables_reach_the_role_that_reads_them(
    said: Said, prefill: str, decode: str, defaults: str, found: list[str]
) -> None:
    envs = {"prefill": prefill, "decode": decode, "defaults": defaults}
    assert said(**{name: f"{{env: {{{env}}}}}" for name, env in envs.items()}) == found


@pytest.mark.parametrize(
    ("seconds", "transfer", "decode", "found"),
    [
        (300, "waiting_timeout_s: 600", "{}", ["warning PD431"]),
        (900, "waiting_timeout_s: 600", "{}", []),
        (300, "queues: 4", f"{{env: {{{WAITING}}}}}", ["warning PD431"]),
        (300, "queues: 4", "{}", []),
    ],
)
def test_the_router_waits_longer_than_decode(
    said: Said, seconds: int, transfer: str, decode: str, found: list[str]
) -> None:
    router = f"{{kind: sglang_router, request_timeout_s: {seconds}}}"
    assert said(transfer=f"{{backend: mooncake, {transfer}}}", decode=decode, router=router) == found


@pytest.mark.parametrize(
    ("env", "found"),
    [
        ("MC_FORCE_MNNVL: '0'", ["warning PD292", "warning PD421"]),
        ("SGLANG_MOONCAKE_CUSTOM_MEM_POOL: NVLINK", ["warning PD421"]),
        ("SGLANG_MOONCAKE_CUSTOM_MEM_POOL: INTRA_NODE_NVLINK", []),
        ("NCCL_MNNVL_ENABLE: '1'", []),  # NCCL looks for itself
    ],
)
def test_variables_of_a_fabric_on_one_node(said: Said, env: str, found: list[str]) -> None:
    assert said(cluster=ONE_NODE, defaults=f"{{env: {{{env}}}}}") == found
