"""How prefill and decode shard attention: what SGLang can cut and join on the way, by model and version.

Sources: sglang `srt/disaggregation/{common,mooncake,nixl,mori}/conn.py` and `common/staging_buffer.py` of
the releases from 0.5.9 to 0.5.23.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.transfer import is_staged
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.reading import NEWEST_READ, backend_of, is_at_most
from pdctl.topology.model import Role, Topology
from pdctl.topology.source import DocumentPath

# The last release that refuses to move the state of such a model between different widths.
_LAST_REFUSING: Mapping[tuple[str, str], str] = {
    ("sliding", "mooncake"): "0.5.21",
    ("sliding", "nixl"): "0.5.21",
    ("sliding", "mori"): NEWEST_READ,
    ("hybrid", "nixl"): "0.5.10.post1",
    ("sparse", "mooncake"): NEWEST_READ,
    ("sparse", "nixl"): NEWEST_READ,
    ("sparse", "mori"): NEWEST_READ,
    ("sparse", "ascend"): NEWEST_READ,
}

# The last release that takes wrong KV heads where decode ranks outnumber them (sglang #30997, #31968).
_LAST_WRONG_HEADS: Mapping[str, str] = {"mooncake": "0.5.15.post1", "nixl": "0.5.16"}

_PLACE: DocumentPath = ("decode", "parallel", "tp")


def attention_widths_differ(topology: Topology) -> bool:
    return topology.prefill.parallel.attn_tp != topology.decode.parallel.attn_tp


def _one_divides_the_other(topology: Topology) -> Iterable[Diagnostic]:
    prefill, decode = topology.prefill.parallel.attn_tp, topology.decode.parallel.attn_tp
    if max(prefill, decode) % min(prefill, decode):
        yield at_value(
            topology,
            _PLACE,
            "PD316",
            f"prefill shards attention {prefill} ways and decode {decode} ways: neither divides the other",
            notes=(_widths(topology), "ranks are paired by whole multiples, so some KV would never arrive"),
            help="choose `tp` and `attn_dp` so that one `tp / attn_dp` is a multiple of the other",
        )


def _state_can_be_cut(topology: Topology) -> Iterable[Diagnostic]:
    if not attention_widths_differ(topology):
        return
    attention, backend = topology.facts.attention, backend_of(topology)
    last = _LAST_REFUSING.get((attention or "", backend))
    if last is None or not is_at_most(topology, last):
        return
    hint = "shard attention alike: the same `tp / attn_dp` on both"
    yield at_value(
        topology,
        _PLACE,
        "PD317",
        f"a model with {attention} attention needs equal attention widths over {backend}",
        notes=(_widths(topology), f"SGLang up to {last} fails every request of such a pair"),
        help=hint if last == NEWEST_READ else f"{hint}, or use an engine newer than {last}",
    )


def _block_scales_can_be_cut(topology: Topology) -> Iterable[Diagnostic]:
    """MXFP8 keeps scales beside the numbers, cut by heads; releases before 0.5.22 didn't look."""
    if not attention_widths_differ(topology) or topology.facts.is_mla is not False:
        return
    stated = stated_arg(topology, topology.decode, "kv-cache-dtype")
    if stated is not None and stated.value == "mxfp8" and not is_at_most(topology, "0.5.21"):
        yield at_value(
            topology,
            stated.path,
            "PD317",
            "a KV cache in mxfp8 needs equal attention widths",
            notes=(_widths(topology), "SGLang aborts every request of such a pair"),
            help="shard attention alike: the same `tp / attn_dp` on both, or keep KV in fp8_e4m3",
        )


def _kv_heads_are_found(topology: Topology) -> Iterable[Diagnostic]:
    facts, decode = topology.facts, topology.decode.parallel.attn_tp
    last = _LAST_WRONG_HEADS.get(backend_of(topology))
    if facts.is_mla or facts.num_kv_heads is None or last is None or not is_at_most(topology, last):
        return
    if topology.prefill.parallel.attn_tp < decode and decode > facts.num_kv_heads:
        yield at_value(
            topology,
            _PLACE,
            "PD319",
            f"decode shards attention {decode} ways, the model has {facts.num_kv_heads} KV heads",
            notes=(
                _widths(topology),
                f"over {backend_of(topology)}, SGLang up to {last} takes wrong heads or fails",
            ),
            help=f"shard attention alike on both, or use an engine newer than {last}",
        )


def _slices_are_collected(topology: Topology) -> Iterable[Diagnostic]:
    if not attention_widths_differ(topology) or topology.facts.attention not in ("mha", "gqa"):
        return
    if is_staged(topology, Release(version=topology.engine.version)):
        return
    yield at_value(
        topology,
        _PLACE,
        "PD318",
        "unequal attention widths send the KV cache in one small piece per token, layer and head",
        severity=Severity.WARNING,
        notes=(
            _widths(topology),
            "reported as slow at low load, and as crashes of both sides at 128 concurrent requests",
        ),
        help="set `transfer.staging: auto`"
        if can_stage(topology)
        else "shard attention alike: the same `tp / attn_dp` on both",
    )


def can_stage(topology: Topology) -> bool:
    """Whether this engine can collect slices of KV in a buffer, for a model that isn't MLA."""
    release, backend = Release(version=topology.engine.version), backend_of(topology)
    if backend == "nixl":
        return release.has_staging_over_nixl
    return backend == "mooncake" and release.has_staging


def _the_model_is_known(topology: Topology) -> Iterable[Diagnostic]:
    if attention_widths_differ(topology) and topology.facts.attention is None:
        yield at_value(
            topology,
            _PLACE,
            "PD320",
            "whether this model may be sharded differently on prefill and decode isn't known",
            severity=Severity.WARNING,
            notes=(
                _widths(topology),
                "free for MLA; slow without staging for MHA and GQA; by version for others",
            ),
            help="state `model.attention`, or let `model.path` be a folder with a `config.json`",
        )


def _heads_divide(topology: Topology) -> Iterable[Diagnostic]:
    """SGLang's model files assert it at load (such as `srt/models/llama.py`); on CPUs heads are padded."""
    facts = topology.facts
    if topology.cluster.devices_per_node == 0:
        return
    for role in topology.roles:
        attn_tp = role.parallel.attn_tp
        if facts.num_heads is not None and facts.num_heads % attn_tp:
            yield _uneven(topology, role, f"{facts.num_heads} attention heads")
        elif facts.num_kv_heads and not facts.is_mla and not _share(facts.num_kv_heads, attn_tp):
            yield _uneven(topology, role, f"{facts.num_kv_heads} KV heads")


def _uneven(topology: Topology, role: Role, heads: str) -> Diagnostic:
    return at_value(
        topology,
        (role.name, "parallel", "tp"),
        "PD279",
        f"{heads} can't be shared by {role.parallel.attn_tp} ranks",
        notes=("the engine stops while it loads the model",),
        help="choose `tp` and `attn_dp` so that `tp / attn_dp` divides the heads",
    )


def _share(num_heads: int, num_ranks: int) -> bool:
    return num_heads % num_ranks == 0 or num_ranks % num_heads == 0


def _widths(topology: Topology) -> str:
    return " and ".join(f"{role.name} has {_width(role)}" for role in topology.roles)


def _width(role: Role) -> str:
    parallel = role.parallel
    cut = "".join(
        f" / `{name}: {size}`"
        for name, size in (("attn_dp", parallel.attn_dp), ("attn_cp", parallel.attn_cp))
        if size != 1
    )
    return f"`tp: {parallel.tp}`{cut} = {parallel.attn_tp}"


RULES = (
    Rule(code="PD279", check=_heads_divide),
    Rule(code="PD316", check=_one_divides_the_other),
    Rule(code="PD317", check=_state_can_be_cut),
    Rule(code="PD317", check=_block_scales_can_be_cut),
    Rule(code="PD318", check=_slices_are_collected),
    Rule(code="PD319", check=_kv_heads_are_found),
    Rule(code="PD320", check=_the_model_is_known),
)
