"""Rules see the variables of a process as the plan sets them: of the plan, all, its role, its node."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.compiler import Programs, compile_plan
from pdctl.engines.sglang import PROGRAM as SGLANG
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.routers.mini_lb import PROGRAM as ROUTER
from pdctl.rules.sglang.processes import planned_at, process_variables
from pdctl.topology.load import load_text
from pdctl.topology.model import Topology

Said = Callable[..., list[str]]


def topology(lines: str, version: str = "0.5.23") -> Topology:
    head = f'schema: pdctl/v1\nname: demo\nengine: {{kind: sglang, version: "{version}"}}\n'
    model = "" if "model:" in lines else "model: {path: Qwen/Qwen3-32B}\n"
    transfer = "" if "transfer:" in lines else "transfer: {backend: mooncake}\n"
    roles = "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if f"{role}:" not in lines)
    loaded = load_text(f"{head}{model}{transfer}{lines}{roles}").require()
    return with_facts(loaded, lambda path: None)[0]


def cluster(a: str = "", b: str = "") -> str:
    hosts = f"{{name: a, address: 10.0.0.1{a}}}, {{name: b, address: 10.0.0.2{b}}}"
    return f"cluster: {{executor: ssh, devices_per_node: 8, nodes: [{hosts}]}}\n"


def read(lines: str, role: str, *names: str) -> list[dict[str, tuple[object, str]]]:
    checked = topology(lines)
    found = process_variables(checked, getattr(checked, role), *names)
    return [
        {name: (stated.value, ".".join(map(str, stated.path))) for name, stated in each.items()}
        for each in found
    ]


def test_a_node_wins_over_its_role_which_wins_over_the_defaults_and_the_plan() -> None:
    lines = (
        cluster(a=", interface: bond0, env: {A: node}")
        + "transfer: {backend: mooncake, queues: 4}\n"
        + "defaults: {env: {A: all, B: all, SGLANG_DISAGGREGATION_QUEUE_SIZE: '5'}}\n"
        + "prefill: {on: [a], env: {A: role, B: role}}\n"
    )
    names = ("A", "B", "SGLANG_DISAGGREGATION_QUEUE_SIZE", "GLOO_SOCKET_IFNAME", "NOTHING")
    assert read(lines, "prefill", *names) == [
        {
            "A": ("node", "cluster.nodes.0.env.A"),
            "B": ("role", "prefill.env.B"),
            "SGLANG_DISAGGREGATION_QUEUE_SIZE": ("5", "defaults.env.SGLANG_DISAGGREGATION_QUEUE_SIZE"),
            "GLOO_SOCKET_IFNAME": ("bond0", "cluster.nodes.0.interface"),
        }
    ]


def test_only_nodes_that_the_role_runs_on_count() -> None:
    lines = cluster(a=", env: {A: one}", b=", env: {A: two}")
    assert read(lines + "decode: {on: [b]}\n", "decode", "A") == [{"A": ("two", "cluster.nodes.1.env.A")}]
    assert read(lines, "decode", "A") == [{"A": ("one", "cluster.nodes.0.env.A")}]  # the first has room
    spread = "decode: {nodes: 2, parallel: {tp: 16}}\nprefill: {devices: 8}\n"  # no room for it at all
    assert [each["A"][0] for each in read(lines + spread, "decode", "A")] == ["one", "two"]


def test_nodes_that_say_the_same_count_once() -> None:
    lines = cluster(a=", env: {A: one}", b=", env: {A: one}") + "decode: {nodes: 2, parallel: {tp: 2}}\n"
    assert len(read(lines, "decode", "B")) == 1


DOCUMENTS = (
    "transfer: {backend: mooncake, nvlink: mnnvl, threads: 8, queues: 4, bootstrap_timeout_s: 300}\n",
    "transfer: {backend: mooncake, nvlink: intra_node, heartbeat_interval_s: 5, heartbeat_max_failures: 2}\n",
    "transfer: {backend: mooncake, staging: {mode: 'on', buffer_mb: 64, pool_mb: 4096}}\n",
    "transfer: {backend: nixl, waiting_timeout_s: 300, nixl: {plugin: LIBFABRIC, params: {a: b}}}\n",
    "transfer: {backend: ascend, ascend: {protocol: sdma, store_url: 'tcp://10.0.0.1:1'}}\n",
    "transfer: {backend: ascend, ascend: {with_mooncake: true}}\n",
    "transfer: {backend: mooncake_tcp}\n",
)


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1", "0.5.23"])
@pytest.mark.parametrize("transfer", DOCUMENTS)
def test_rules_see_what_the_plan_sets_and_where_it_comes_from(transfer: str, version: str) -> None:
    lines = cluster(a=", interface: ib0", b=", interface: ib0") + transfer
    checked = topology(lines, version)
    programs = Programs(engine=SGLANG, router=ROUTER)
    plan = compile_plan(checked, declared(checked.cluster), programs)
    for role in checked.roles:
        spec = plan.process(f"{role.name}-0.0")
        assert spec is not None
        names = tuple(name for name in spec.env if "VISIBLE_DEVICES" not in name)
        (seen,) = process_variables(checked, role, *names)
        values = {name: stated.value for name, stated in seen.items()}
        assert values == {name: spec.env[name] for name in names}
        for name, stated in seen.items():
            assert stated.path == planned_at(name, 0)


NODE = "{{executor: ssh, devices_per_node: 8, nodes: [{{name: a, {0}}}, {{name: b, {1}}}]}}"


@pytest.mark.parametrize(
    ("a", "b", "found"),
    [
        ("env: {MC_FORCE_TCP: '1'}", "env: {MC_FORCE_TCP: '1'}", []),
        ("env: {MC_FORCE_TCP: '1'}", "env: {}", ["error PD313"]),
        ("env: {}", "env: {SGLANG_DISAGGREGATION_WAITING_TIMEOUT: '9999999'}", ["warning PD324"]),
        ("env: {SGLANG_DISAGGREGATION_QUEUE_SIZE: '16'}", "env: {}", ["error PD420"]),
        ("env: {}", "env: {SGLANG_DISAGGREGATION_QUEUE_SIZE: '16'}", []),  # decode has no queues
        ("env: {GLOO_SOCKET_IFNAME: ^lo}", "env: {}", ["error PD423"]),
        ("env: {}", "env: {GLOO_SOCKET_IFNAME: =eth0}", ["error PD423"]),
        ("interface: lo", "interface: lo", []),
    ],
)
def test_rules_read_the_variables_of_nodes(said: Said, a: str, b: str, found: list[str]) -> None:
    assert said(cluster=NODE.format(a, b), prefill="{on: [a]}", decode="{on: [b]}") == found


def test_a_loopback_interface_of_a_node_is_refused_for_instances_on_several(said: Said) -> None:
    decode = "{nodes: 2, parallel: {tp: 2}}"
    cluster = "{executor: ssh, devices_per_node: 8, nodes: [{name: a, interface: lo}, {name: b}, {name: c}]}"
    found = said(model="{path: mine, attention: mla}", cluster=cluster, prefill="{on: [c]}", decode=decode)
    assert found == ["error PD423", "error PD423"]  # for Gloo and for NCCL


def test_a_node_may_raise_the_dispatch_limit(said: Said) -> None:
    args = "{moe-a2a-backend: deepep, cuda-graph-max-bs-decode: 256}"
    env = "env: {SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK: '512'}"
    roles = {"prefill": "{on: [a]}", "decode": f"{{on: [b], parallel: {{tp: 8, attn_dp: 8}}, args: {args}}}"}
    model = "{path: mine, attention: mla}"
    assert said(model=model, cluster=NODE.format("env: {}", env), **roles) == []
    assert said(model=model, cluster=NODE.format(env, "env: {}"), **roles) == ["error PD273"]


def test_what_a_field_sets_for_both_roles_may_be_written_out_for_one(said: Said) -> None:
    decode = "{env: {SGLANG_MOONCAKE_CUSTOM_MEM_POOL: NVLINK}}"
    assert said(transfer="{backend: mooncake, nvlink: mnnvl}", decode=decode) == []


def test_an_old_prefix_is_copied_over_the_new_one() -> None:
    lines = "defaults: {env: {SGL_X: old, SGLANG_X: new}}\ndecode: {env: {SGLANG_X: newer}}\n"
    assert read(lines, "decode", "SGLANG_X") == [{"SGLANG_X": ("old", "defaults.env.SGL_X")}]
