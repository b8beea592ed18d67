"""Port families of SGLang's instances."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.plan.model import LaunchPlan

Plan = Callable[..., LaunchPlan]


def ports(plan: LaunchPlan, process_id: str) -> dict[str, int]:
    spec = plan.process(process_id)
    assert spec is not None
    return {claim.name: claim.port for claim in spec.ports}


def test_without_attention_dp_there_is_nothing_beside_the_ports_of_the_command(plan: Plan) -> None:
    assert ports(plan(""), "prefill-0.0") == {"http": 30000, "bootstrap": 8998, "nccl": 21000}


def test_with_attention_dp_a_family_lies_behind_the_http_port(plan: Plan) -> None:
    """As `PortArgs.init_new` and the DP controller of 0.5.23 compute it."""
    assert ports(plan("decode: {parallel: {tp: 2, attn_dp: 2}}\n"), "decode-0.0") == {
        "http": 30100,
        "handshake": 30113,
        "rendezvous": 30333,
        "tokenizer": 30334,
        "detokenizer": 30335,
        "rpc": 30336,
        "scheduler-metrics": 30337,
        "scheduler": 30338,
        "loads": 30339,
        "nccl": 21001,
    }


def test_over_several_nodes_the_family_lies_behind_the_rendezvous(plan: Plan) -> None:
    made = plan("decode: {nodes: 2, parallel: {tp: 16, attn_dp: 16}}\n")
    claims = ports(made, "decode-0.0")
    assert (claims["dist-init"], claims["tokenizer"], claims["loads"], claims["handshake"]) == (
        20000,
        20001,
        20006,
        20013,
    )
    assert ports(made, "decode-0.1") == {"http": 30100}


def test_families_of_a_full_node_never_meet(plan: Plan) -> None:
    """Requested or not, prefill and decode, all with attention DP."""
    made = plan(
        "prefill: {instances: 2, parallel: {tp: 2, attn_dp: 2}}\n"
        "decode: {instances: 2, parallel: {tp: 2, attn_dp: 2}}\n",
        nodes="{name: n1, address: 10.0.0.1}",
    )
    claimed = [claim.port for process in made.processes for claim in process.ports]
    assert len(claimed) == len(set(claimed))


def test_a_requested_port_whose_family_meets_another_is_an_error(plan: Plan) -> None:
    with pytest.raises(DiagnosticError) as raised:
        plan("prefill: {port: 30000, parallel: {tp: 2, attn_dp: 2}}\ndecode: {port: 30013}\n")
    (fault,) = raised.value.diagnostics
    assert fault.code == "PD404"
    assert fault.message == "`decode-0.0` and `prefill-0.0` both claim port 30013 on 10.0.0.1"


def test_a_default_moves_to_where_its_whole_family_fits(plan: Plan) -> None:
    made = plan("prefill: {parallel: {tp: 2, attn_dp: 2}}\nrouter: {port: 30236}\n")
    assert ports(made, "prefill-0.0")["http"] == 30300


def test_more_instances_than_strides_fit_still_stay_below_the_ephemeral_range(plan: Plan) -> None:
    made = plan(
        "prefill: {instances: 12}\n",
        nodes="{name: n1, address: 10.0.0.1, devices: 13}",
    )
    claimed = {claim.port for process in made.processes for claim in process.ports}
    assert max(claimed) < 32768
    assert not claimed & {*range(15000, 17001), *range(22000, 30000)}


def test_the_first_prefill_alone_opens_the_store_of_ascend(plan: Plan) -> None:
    made = plan("transfer: {backend: ascend}\nprefill: {instances: 2}\n")
    assert ports(made, "prefill-0.0")["ascend-store"] == 19000
    assert "ascend-store" not in ports(made, "prefill-1.0")
    stores = {process.env["ASCEND_MF_STORE_URL"] for process in made.processes if process.role != "router"}
    assert stores == {"tcp://10.0.0.1:19000"}


def events(plan: LaunchPlan, process_id: str) -> list[int]:
    return [port for name, port in ports(plan, process_id).items() if name.startswith("kv-")]


def test_followers_publish_the_kv_events_of_their_own_attention_ranks(plan: Plan) -> None:
    """SGLang 0.5.23 binds the endpoint's port plus the attention DP rank, where that rank runs."""
    made = plan("decode: {nodes: 2, kv_events_port: 5557, parallel: {tp: 16, attn_dp: 8}}\n")
    assert events(made, "decode-0.0") == [5557, 5558, 5559, 5560]
    assert events(made, "decode-0.1") == [5561, 5562, 5563, 5564]


def test_only_the_first_pipeline_stage_publishes(plan: Plan) -> None:
    made = plan("prefill: {nodes: 2, kv_events_port: 5557, parallel: {tp: 8, pp: 2, attn_dp: 4}}\n")
    assert events(made, "prefill-0.0") == [5557, 5558, 5559, 5560]
    assert events(made, "prefill-0.1") == []


def test_an_instance_without_attention_dp_publishes_on_its_leader(plan: Plan) -> None:
    made = plan("decode: {nodes: 2, kv_events_port: 5557, parallel: {tp: 16}}\n")
    assert (events(made, "decode-0.0"), events(made, "decode-0.1")) == ([5557], [])


def test_copies_publish_each_on_a_port_of_its_own(plan: Plan) -> None:
    made = plan("decode: {instances: 2, kv_events_port: 5557, parallel: {dp: 2}}\n")
    assert [events(made, f"decode-{index}.0") for index in (0, 1)] == [[5557, 5558], [5559, 5560]]


def test_loads_are_packed_behind_the_events(plan: Plan) -> None:
    role = "{instances: 2, kv_events_port: 5557, parallel: {tp: 2, attn_dp: 2}, args: {%s}}"
    made = plan(f"decode: {role % 'load-publish-endpoint: auto'}\n")
    assert [events(made, f"decode-{index}.0") for index in (0, 1)] == [
        [5557, 5558, 5559, 5560],
        [5561, 5562, 5563, 5564],
    ]


@pytest.mark.parametrize(
    ("config", "claimed"),
    [
        ("{publisher: zmq}", [5557]),  # SGLang's own default
        ("{publisher: 'null'}", []),
        ('{publisher: zmq, endpoint: "tcp://*:6000", replay_endpoint: "tcp://*:6100"}', [6000, 6100]),
        ('{publisher: zmq, endpoint: "tcp://10.9.9.9:6000"}', []),  # connects to it
        ('{publisher: zmq, endpoint: "tcp://127.0.0.1:6000", bind: true}', [6000]),
        ('{publisher: zmq, endpoint: "ipc:///tmp/events"}', []),
        ("""'{"publisher": "zmq", "endpoint": "tcp://*:6000"}'""", [6000]),
        ("no-json", []),
    ],
)
def test_ports_that_a_flag_of_the_document_names_are_claimed_too(
    plan: Plan, config: str, claimed: list[int]
) -> None:
    apart = "prefill: {on: [n1]}\n"
    for place in ("decode: {on: [n2], ", "decode: {on: [n2]}\ndefaults: {"):
        made = plan(f"{apart}{place}args: {{kv-events-config: {config}}}}}\n")
        assert events(made, "decode-0.0") == claimed


def test_loads_give_way_to_replays(plan: Plan) -> None:
    config = '{publisher: zmq, endpoint: "tcp://*:5557", replay_endpoint: "tcp://*:5558"}'
    made = plan(f"decode: {{args: {{kv-events-config: {config}, load-publish-endpoint: auto}}}}\n")
    assert events(made, "decode-0.0") == [5557, 5558, 5559]


def test_a_port_of_a_follower_is_nobody_elses(plan: Plan) -> None:
    with pytest.raises(DiagnosticError) as raised:
        plan(
            "prefill: {on: [n3]}\n"
            "decode: {on: [n1, n2], nodes: 2, kv_events_port: 5557, parallel: {tp: 16, attn_dp: 16}}\n"
            "router: {on: n2, port: 5565}\n"
        )
    (fault,) = raised.value.diagnostics
    assert (fault.code, fault.message) == (
        "PD404",
        "`router-0.0` and `decode-0.1` both claim port 5565 on 10.0.0.2",
    )


def test_instances_whose_experts_meet_over_nixl_have_a_store_each(plan: Plan) -> None:
    args = "args: {moe-a2a-backend: nixl}"
    made = plan(f"decode: {{instances: 2, parallel: {{tp: 2}}, {args}}}\n")
    stores = [ports(made, f"decode-{index}.0")["tcp-store"] for index in (0, 1)]
    assert stores == [20900, 20901]
    told = [process.env["SGLANG_TCP_STORE_PORT"] for process in made.processes if process.role == "decode"]
    assert told == ["20900", "20901"]
