"""Memory that Mooncake allocates for KV cache: a pool that exists, and that its network can send."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value
from pdctl.rules.sglang.processes import Variables, process_variables
from pdctl.rules.sglang.reading import backend_of, is_at_most
from pdctl.topology.model import Topology

POOL, _PROTOCOL = "SGLANG_MOONCAKE_CUSTOM_MEM_POOL", "MOONCAKE_PROTOCOL"
_ALLOCATORS = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")
_POOLS = ("NVLINK", "BAREX", "INTRA_NODE_NVLINK")
_LAST_WITHOUT_EFA_CHECK = "0.5.20"  # where the transfer fails instead


def _pools_exist(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/mooncake/utils.py, check_mooncake_custom_mem_pool_enabled."""
    if backend_of(topology) != "mooncake":
        return
    for role in topology.roles:
        for variables in process_variables(topology, role, POOL):
            stated = variables.get(POOL)
            if stated is None or pool_of(stated) in _POOLS:
                continue
            yield at_value(
                topology,
                stated.path,
                "PD242",
                f"Mooncake has no memory pool `{stated.value}`",
                severity=Severity.WARNING,
                notes=("SGLang goes on without a pool, and NVLink isn't used", "only `true` may be in small"),
                help=f"write {', '.join(_POOLS)}, or remove it; `transfer.nvlink` chooses the pool itself",
            )


def _the_network_can_send_it(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/mooncake/utils.py, _validate_efa_allocator_compatibility."""
    if backend_of(topology) != "mooncake":
        return
    for role in topology.roles:
        for variables in process_variables(topology, role, _PROTOCOL, POOL, *_ALLOCATORS):
            protocol = variables.get(_PROTOCOL)
            if protocol is None or str(protocol.value).strip().lower() != "efa":
                continue
            for name, stated in _virtual_memory(variables):
                yield at_value(
                    topology,
                    stated.path,
                    "PD243",
                    f"EFA can't send the memory that `{name}: {stated.value}` allocates",
                    notes=(
                        "transfers fail"
                        if is_at_most(topology, _LAST_WITHOUT_EFA_CHECK)
                        else "SGLang ends at start",
                    ),
                    help="remove it",
                )


def _virtual_memory(variables: Variables) -> Iterable[tuple[str, Stated]]:
    """What makes allocations through CUDA's virtual memory functions."""
    pool = variables.get(POOL)
    if pool is not None and pool_of(pool) in ("NVLINK", "BAREX"):
        yield POOL, pool
    for name in _ALLOCATORS:
        stated = variables.get(name)
        if stated is not None and _is_expandable(str(stated.value)):
            yield name, stated


def pool_of(stated: Stated) -> str:
    """The pool that SGLang makes of the word; it may be none that exists."""
    word = str(stated.value)
    return "NVLINK" if word.lower() == "true" else word


def _is_expandable(settings: str) -> bool:
    pairs = (each.partition(":") for each in settings.split(","))
    return any(
        key.strip() == "expandable_segments" and value.strip().lower() == "true" for key, _, value in pairs
    )


RULES = (
    Rule(code="PD242", check=_pools_exist),
    Rule(code="PD243", check=_the_network_can_send_it),
)
