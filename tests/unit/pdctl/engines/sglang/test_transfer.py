"""Which variable goes to which role, in which release."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.plan.argv import flags_of
from pdctl.plan.model import ProcessSpec

Process = Callable[..., ProcessSpec]
PREFIXES = ("SGLANG_DISAGG", "SGLANG_MOONCAKE", "MC_", "NCCL_", "ASCEND_MF", "ENABLE_")


def variables(spec: ProcessSpec) -> dict[str, str]:
    return {name: value for name, value in spec.env.items() if name.startswith(PREFIXES)}


def both(process: Process, lines: str, **changes: str) -> tuple[dict[str, str], dict[str, str]]:
    prefill, decode = (
        variables(process(lines, process_id, **changes)) for process_id in ("prefill-0.0", "decode-0.0")
    )
    return prefill, decode


def test_each_variable_goes_to_the_role_that_reads_it(process: Process) -> None:
    lines = (
        "transfer: {backend: mooncake, threads: 12, queues: 6, bootstrap_timeout_s: 60,"
        " waiting_timeout_s: 90, heartbeat_interval_s: 2.5, heartbeat_max_failures: 3}\n"
    )
    assert both(process, lines) == (
        {
            "SGLANG_DISAGGREGATION_THREAD_POOL_SIZE": "12",
            "SGLANG_DISAGGREGATION_QUEUE_SIZE": "6",
            "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "60",
        },
        {
            "SGLANG_DISAGGREGATION_WAITING_TIMEOUT": "90",
            "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "2.5",
            "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": "3",
        },
    )


def test_seconds_are_whole_and_written_out(process: Process) -> None:
    lines = "transfer: {backend: mooncake, bootstrap_timeout_s: 0.2, waiting_timeout_s: 604800}\n"
    prefill, decode = both(process, lines)
    assert prefill["SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT"] == "1"
    assert decode["SGLANG_DISAGGREGATION_WAITING_TIMEOUT"] == "604800"


UNEQUAL = "prefill: {parallel: {tp: 4}}\n"


@pytest.mark.parametrize(
    ("lines", "changes", "is_staged"),
    [
        (UNEQUAL, {}, True),
        (UNEQUAL, {"attention": "mha"}, True),
        (UNEQUAL, {"attention": "mla"}, False),
        (UNEQUAL, {"attention": "hybrid"}, False),
        (UNEQUAL, {"version": "0.5.9"}, False),
        (UNEQUAL + "transfer: {backend: nixl}\n", {}, True),
        (UNEQUAL + "transfer: {backend: nixl}\n", {"version": "0.5.10"}, False),
        (UNEQUAL + "transfer: {backend: mori}\n", {}, False),
        (UNEQUAL + "transfer: {backend: mooncake, staging: off}\n", {}, False),
        (UNEQUAL + "defaults: {args: {device: cpu}}\n", {}, False),
        ("prefill: {parallel: {tp: 4, attn_dp: 4}}\n", {}, False),
        ("transfer: {backend: mooncake, staging: on}\n", {}, True),
    ],
)
def test_staging_is_on_for_unequal_attention_of_models_with_heads(
    process: Process, lines: str, changes: dict[str, str], is_staged: bool
) -> None:
    wanted = {"SGLANG_DISAGG_STAGING_BUFFER": "1"} if is_staged else {}
    assert both(process, lines, **changes) == (wanted, wanted)


@pytest.mark.parametrize(("version", "has_buffer_size"), [("0.5.16", True), ("0.5.17", False)])
def test_sizes_go_to_releases_that_read_them(process: Process, version: str, has_buffer_size: bool) -> None:
    lines = UNEQUAL + "transfer: {backend: mooncake, staging: {buffer_mb: 64, pool_mb: 8192}}\n"
    prefill, decode = both(process, lines, version=version)
    assert ("SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB" in prefill) is has_buffer_size
    assert "SGLANG_DISAGG_STAGING_POOL_SIZE_MB" not in prefill
    assert decode["SGLANG_DISAGG_STAGING_POOL_SIZE_MB"] == "8192"


FABRIC = {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}


@pytest.mark.parametrize(
    ("transfer", "wanted"),
    [
        ("backend: mooncake", {}),
        (
            "backend: mooncake, nvlink: intra_node",
            {"SGLANG_MOONCAKE_CUSTOM_MEM_POOL": "INTRA_NODE_NVLINK", "MC_INTRANODE_NVLINK": "1"},
        ),
        (
            "backend: mooncake, nvlink: mnnvl",
            {"SGLANG_MOONCAKE_CUSTOM_MEM_POOL": "NVLINK", "MC_FORCE_MNNVL": "1", **FABRIC},
        ),
        ("backend: nixl, nvlink: mnnvl", FABRIC),
        ("backend: mooncake_tcp", {}),
        (
            'backend: nixl, nixl: {plugin: LIBFABRIC, params: {num_threads: "8"}}',
            {
                "SGLANG_DISAGGREGATION_NIXL_BACKEND": "LIBFABRIC",
                "SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS": '{"num_threads":"8"}',
            },
        ),
        ("backend: ascend", {"ASCEND_MF_STORE_URL": "tcp://10.0.0.1:19000"}),
        (
            "backend: ascend, ascend: {store_url: 'tcp://10.0.0.9:24670', protocol: device_rdma}",
            {"ASCEND_MF_STORE_URL": "tcp://10.0.0.9:24670", "ASCEND_MF_TRANSFER_PROTOCOL": "device_rdma"},
        ),
        ("backend: ascend, ascend: {with_mooncake: true}", {"ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE": "true"}),
    ],
)
def test_backends_get_exactly_their_variables_on_both_roles(
    process: Process, transfer: str, wanted: dict[str, str]
) -> None:
    assert both(process, f"transfer: {{{transfer}}}\n") == (wanted, wanted)


@pytest.mark.parametrize(
    ("version", "backend", "variable"), [("0.5.12.post1", "mooncake", "1"), ("0.5.13", "mooncake_tcp", None)]
)
def test_mooncake_over_tcp_is_a_variable_before_it_is_a_backend(
    process: Process, version: str, backend: str, variable: str | None
) -> None:
    spec = process("transfer: {backend: mooncake_tcp}\n", "decode-0.0", version=version)
    assert flags_of(spec.argv)["disaggregation-transfer-backend"] == (backend,)
    assert spec.env.get("MC_FORCE_TCP") == variable


@pytest.mark.parametrize(
    ("devices", "value"),
    [
        ("[mlx5_0, mlx5_1]", "mlx5_0,mlx5_1"),
        ('{"0": [mlx5_0], "2": [mlx5_2], "3": [mlx5_3, mlx5_4]}', '{"0":"mlx5_2","1":"mlx5_3,mlx5_4"}'),
        ("{per_node: {n1: [mlx5_7], n2: [mlx5_8]}}", "mlx5_7"),
        ("{per_node: {n2: [mlx5_8]}}", None),
    ],
)
def test_rdma_devices_are_named_as_the_process_sees_its_accelerators(
    process: Process, devices: str, value: str | None
) -> None:
    lines = f"transfer: {{backend: mooncake, ib_devices: {devices}}}\nprefill: {{parallel: {{tp: 2}}}}\n"
    lines += "decode: {parallel: {tp: 2}}\n"
    flags = flags_of(process(lines, "decode-0.0").argv)  # on n1, devices 2 and 3
    assert flags.get("disaggregation-ib-device") == (None if value is None else (value,))


@pytest.mark.parametrize(
    ("version", "transfer", "is_said"),
    [
        ("0.5.22", "backend: nixl", False),
        ("0.5.23", "backend: nixl", True),
        ("0.5.23", "backend: nixl, nixl: {plugin: LIBFABRIC}", False),
        ("0.5.23", "backend: mooncake_tcp", False),
        ("0.5.9", "backend: mooncake", True),
    ],
)
def test_rdma_devices_are_said_where_they_are_read(
    process: Process, version: str, transfer: str, is_said: bool
) -> None:
    spec = process(f"transfer: {{{transfer}, ib_devices: [mlx5_0]}}\n", "prefill-0.0", version=version)
    assert ("disaggregation-ib-device" in flags_of(spec.argv)) is is_said


@pytest.mark.parametrize(("version", "is_said"), [("0.5.20", False), ("0.5.21", True)])
def test_kv_is_verified_where_the_release_can(process: Process, version: str, is_said: bool) -> None:
    spec = process("transfer: {backend: mooncake, verify_kv: true}\n", "decode-0.0", version=version)
    assert ("--disaggregation-enable-kv-checksum" in spec.argv) is is_said


def test_npus_are_shown_by_their_own_variable(process: Process) -> None:
    spec = process("transfer: {backend: ascend}\n", "decode-0.0")
    assert spec.env["ASCEND_RT_VISIBLE_DEVICES"] == "1"
    assert "CUDA_VISIBLE_DEVICES" not in spec.env
