"""KV cache that prefill keeps in shards of pages, each on another rank (`--enable-kv-cache-sharding`)."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.attention import attention_widths_differ
from pdctl.rules.sglang.reading import DCP_FLAGS, first_stated, number, switch
from pdctl.topology.model import Topology


def _shards_find_their_ranks(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/common/conn.py, try_ensure_parallel_info, _resolve_rank_mapping."""
    prefill, decode = topology.roles
    stated = switch(topology, prefill, "enable-kv-cache-sharding")
    if stated is None:
        return
    if (number(first_stated(topology, decode, *DCP_FLAGS)) or 1) > 1:
        why, remedy = "decode context parallelism", "remove one of the two flags"
    elif topology.facts.is_mla and prefill.parallel.attn_cp == 1 and attention_widths_differ(topology):
        why, remedy = "unequal attention widths", "shard attention alike: the same `tp / attn_dp` on both"
    else:
        return
    yield at_value(
        topology,
        stated.path,
        "PD329",
        f"KV cache that is sharded over prefill's ranks can't be read with {why}",
        notes=("SGLang aborts every request of such a pair",),
        help=remedy,
    )


RULES = (Rule(code="PD329", check=_shards_find_their_ranks),)
