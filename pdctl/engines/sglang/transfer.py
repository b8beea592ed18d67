"""What of `transfer` becomes a variable: of the roles that read it, in the releases that read it."""

from __future__ import annotations

import json
import math

from pdctl.engines.sglang.release import Release
from pdctl.plan.layout import Layout
from pdctl.plan.model import RoleKind
from pdctl.topology.model import Env, Role, Topology, Transfer

BACKENDS = ("mooncake", "mooncake_tcp", "nixl", "ascend", "mori", "fake")  # `arg_groups/choices.py`
STAGING_BACKENDS = ("mooncake", "mooncake_tcp", "nixl")  # `arg_groups/pd_disaggregation_hook.py`
CONTEXT_FLAGS = ("enable-prefill-cp", "enable-prefill-context-parallel")
ASCEND_STORE = "ascend-store"  # name of its port
LOWEST_HEARTBEAT_INTERVAL_S = 2.0  # lower ones are raised to it (`disaggregation/common/conn.py`)


def backend_flag(backend: str, release: Release) -> str:
    """The value of `--disaggregation-transfer-backend`."""
    return "mooncake" if backend == "mooncake_tcp" and not release.has_mooncake_tcp else backend


def reads_ib_devices(transfer: Transfer, release: Release) -> bool:
    """Whether `--disaggregation-ib-device` has an effect."""
    match transfer.backend:
        case "mooncake" | "mori":
            return True
        case "nixl":
            return release.binds_nixl_to_ib_devices and (transfer.nixl.plugin or "UCX") == "UCX"
        case _:
            return False


def is_staged(topology: Topology, release: Release) -> bool:
    """Whether KV cache is collected before it is sent.

    `auto` does it where attention is sharded differently on the two sides: without, each head slice of each
    token is a transfer of its own. MLA keeps no heads apart, and SGLang ends at start when told to stage it
    (`disaggregation/prefill.py`); a model whose attention isn't known is left alone.
    """
    transfer = topology.transfer
    if transfer.staging.mode != "auto":
        return transfer.staging.mode == "on"
    can = transfer.backend in STAGING_BACKENDS and (
        release.has_staging_over_nixl if transfer.backend == "nixl" else release.has_staging
    )
    is_unequal = topology.prefill.parallel.attn_tp != topology.decode.parallel.attn_tp
    has_heads = topology.facts.attention in ("mha", "gqa")
    return can and is_unequal and has_heads and _can_hold_staging(topology) and _has_chunks(topology, release)


def _has_chunks(topology: Topology, release: Release) -> bool:
    """Whether prefill sends what it computes in pieces of one size, one stage at a time."""
    prefill, defaults = topology.prefill, topology.defaults.args
    chunk = prefill.args.get("chunked-prefill-size", defaults.get("chunked-prefill-size"))
    has_context_ranks = any(prefill.args.get(flag, defaults.get(flag)) is True for flag in CONTEXT_FLAGS)
    backend = "nixl" if topology.transfer.backend == "nixl" else "mooncake"
    return (
        not (isinstance(chunk, int) and chunk <= 0)
        and (prefill.parallel.pp == 1 or release.stages_from_pipelines(backend))
        and (not has_context_ranks or release.stages_from_context_ranks)
    )


def _can_hold_staging(topology: Topology) -> bool:
    """Whether the memory is of a kind for it; elsewhere the server ends (`common/staging_buffer.py`)."""
    default = topology.defaults.args.get("device")
    return {role.args.get("device", default) for role in topology.roles} <= {None, "cuda", "xpu"}


def transfer_env(
    role: Role, topology: Topology, release: Release, *, default_store: str | None
) -> dict[str, str]:
    own = _of_prefill(topology.transfer) if role.name == "prefill" else _of_decode(topology.transfer)
    return {
        **own,
        **_staging(role, topology, release),
        **_nvlink(topology.transfer),
        **_of_backend(topology.transfer, release, default_store),
    }


def _of_prefill(transfer: Transfer) -> Env:
    return _stated(
        SGLANG_DISAGGREGATION_THREAD_POOL_SIZE=transfer.threads,
        SGLANG_DISAGGREGATION_QUEUE_SIZE=transfer.queues,
        SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT=_whole(transfer.bootstrap_timeout_s),
    )


def _of_decode(transfer: Transfer) -> Env:
    return _stated(
        SGLANG_DISAGGREGATION_WAITING_TIMEOUT=_whole(transfer.waiting_timeout_s),
        SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL=transfer.heartbeat_interval_s,
        SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE=transfer.heartbeat_max_failures,
    )


def _staging(role: Role, topology: Topology, release: Release) -> Env:
    if not is_staged(topology, release):
        return {}
    staging, is_prefill = topology.transfer.staging, role.name == "prefill"
    return {
        "SGLANG_DISAGG_STAGING_BUFFER": "1",
        **_stated(
            SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB=staging.buffer_mb
            if is_prefill and release.reads_staging_buffer_size
            else None,
            SGLANG_DISAGG_STAGING_POOL_SIZE_MB=None if is_prefill else staging.pool_mb,
        ),
    }


def _nvlink(transfer: Transfer) -> Env:
    """MC_ variables count as set whatever their value (Mooncake, `src/config.cpp`): off leaves them out."""
    is_mooncake = transfer.backend == "mooncake"
    match transfer.nvlink:
        case "intra_node" if is_mooncake:
            return {"SGLANG_MOONCAKE_CUSTOM_MEM_POOL": "INTRA_NODE_NVLINK", "MC_INTRANODE_NVLINK": "1"}
        case "mnnvl":
            # NCCL's two are for the fabric itself, so any backend gets them; SGLang would turn CUMEM off.
            fabric = {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1"}
            pool = {"SGLANG_MOONCAKE_CUSTOM_MEM_POOL": "NVLINK", "MC_FORCE_MNNVL": "1"}
            return {**pool, **fabric} if is_mooncake else fabric
        case _:
            return {}


def _of_backend(transfer: Transfer, release: Release, default_store: str | None) -> Env:
    match transfer.backend:
        case "mooncake_tcp" if not release.has_mooncake_tcp:
            return {"MC_FORCE_TCP": "1"}
        case "nixl":
            params = json.dumps(dict(transfer.nixl.params), separators=(",", ":"), sort_keys=True)
            has_params = bool(transfer.nixl.params) and release.reads_nixl_params
            return _stated(
                SGLANG_DISAGGREGATION_NIXL_BACKEND=transfer.nixl.plugin,
                SGLANG_DISAGGREGATION_NIXL_BACKEND_PARAMS=params if has_params else None,
            )
        case "ascend" if transfer.ascend.with_mooncake:
            return {"ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE": "true"}
        case "ascend":
            return _stated(
                ASCEND_MF_STORE_URL=transfer.ascend.store_url or default_store,
                ASCEND_MF_TRANSFER_PROTOCOL=transfer.ascend.protocol,
            )
        case _:
            return {}


def default_store(layout: Layout) -> str | None:
    """Where Ascend's ranks meet: the first prefill instance opens it. None where it wasn't given a port."""
    leader = layout.leaders(RoleKind.PREFILL)[0]
    has_store = any(claim.name == ASCEND_STORE for claim in leader.ports)
    return f"tcp://{leader.endpoint(ASCEND_STORE)}" if has_store else None


def store_place(url: str) -> tuple[str, int]:
    """Address and port of `tcp://ADDRESS:PORT`, an address in numbers without its brackets."""
    address, _, port = url.removeprefix("tcp://").rpartition(":")
    return address.strip("[]"), int(port)


def _whole(seconds: float | None) -> int | None:
    """SGLang reads whole seconds, and takes its default for anything else (`environ.py`, `EnvInt`)."""
    return None if seconds is None else math.ceil(seconds)


def _stated(**values: str | float | None) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value is not None}


def _text(value: str | float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
