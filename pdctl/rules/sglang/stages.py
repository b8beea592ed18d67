"""Pipeline stages and context parallel ranks: which of them SGLang pairs across roles."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.reading import DCP_FLAGS, first_stated, is_at_most, number, word
from pdctl.topology.model import Topology

_LAST_PP_WITHOUT_DRAFTING = "0.5.20"  # on GPUs; Ascend could by then
_LAST_REPORTED_HANG = "0.5.8"  # issue 12121 is of 0.5.4; 0.5.9 is the first release read without a report
_PP_DRAFTING = frozenset({"EAGLE", "NEXTN", "DSPARK"})


def _stages_pair(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/common/conn.py, _resolve_rank_mapping."""
    prefill, decode = topology.prefill.parallel.pp, topology.decode.parallel.pp
    if decode not in (1, prefill):
        yield at_value(
            topology,
            ("decode", "parallel", "pp"),
            "PD321",
            f"decode has {decode} pipeline stages, prefill {prefill}",
            notes=("SGLang pairs equal numbers of stages, or any number with one on decode",),
            help="set `decode.parallel.pp: 1`" + (f" or {prefill}" if prefill != 1 else ""),
        )


def _decode_has_no_context_parallelism(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/common/conn.py, _resolve_rank_mapping."""
    if topology.decode.parallel.attn_cp != 1:
        yield at_value(
            topology,
            ("decode", "parallel", "attn_cp"),
            "PD322",
            f"decode shares the attention of one prompt by {topology.decode.parallel.attn_cp} ranks",
            notes=("only prefill may: SGLang aborts every request of a decode instance that does",),
            help="remove `decode.parallel.attn_cp`",
        )


def _context_is_decoded_whole(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/common/conn.py, try_ensure_parallel_info: decode context parallelism."""
    stated = first_stated(topology, topology.decode, *DCP_FLAGS)
    size = number(stated)
    if stated is None or size is None or size == 1:
        return
    if topology.facts.is_mla is False and topology.facts.attention != "hybrid":
        why = f"needs an MLA model, this one has {topology.facts.attention} attention"
    elif topology.prefill.parallel.attn_cp != 1:
        why = f"can't take from a prefill with `attn_cp: {topology.prefill.parallel.attn_cp}`"
    else:
        return
    yield at_value(
        topology,
        stated.path,
        "PD326",
        f"decode context parallelism {why}",
        notes=("SGLang aborts every request of such a pair",),
        help="remove the flag" if "MLA" in why else "remove the flag, or `prefill.parallel.attn_cp`",
    )


def _old_prefill_stages_without_attention_dp(topology: Topology) -> Iterable[Diagnostic]:
    parallel = topology.prefill.parallel
    if parallel.pp > 1 and parallel.attn_dp > 1 and is_at_most(topology, _LAST_REPORTED_HANG):
        yield at_value(
            topology,
            ("prefill", "parallel", "pp"),
            "PD323",
            "pipeline stages with attention DP were reported to hang prefill's warm-up in this engine",
            severity=Severity.WARNING,
            notes=("reported for 0.5.4 and fixed since",),
            help="use 0.5.9 or newer, or give up one of `pp` and `attn_dp`",
        )


def _sparse_models_have_one_stage(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/{mooncake,nixl,mori}/conn.py, MINIMAX_INDEX_K, from 0.5.15 on."""
    stages = topology.prefill.parallel.pp
    if topology.facts.attention == "sparse" and stages > 1:
        yield at_value(
            topology,
            ("prefill", "parallel", "pp"),
            "PD327",
            f"a model with sparse attention can't be sent from {stages} pipeline stages",
            notes=("each stage has its own few layers of the index; SGLang fails every transfer",),
            help="set `prefill.parallel.pp: 1`",
        )


def _stages_can_draft(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/validation_hook.py, check_pipeline_parallel_compat."""
    for role in topology.roles:
        stated = first_stated(topology, role, "speculative-algorithm", "speculative-algo")
        if role.parallel.pp == 1 or stated is None:
            continue
        algorithm = (word(stated) or "").upper()
        if role.name == "decode":
            why = "decode can't draft across pipeline stages"
        elif algorithm not in _PP_DRAFTING:
            why = f"`{stated.value}` can't draft across pipeline stages"
        elif topology.transfer.backend != "ascend" and is_at_most(topology, _LAST_PP_WITHOUT_DRAFTING):
            why = "this engine can't draft across pipeline stages"
        else:
            continue
        yield at_value(
            topology,
            stated.path,
            "PD281",
            why,
            notes=(
                f"`{role.name}.parallel.pp` is {role.parallel.pp}",
                "SGLang from 0.5.21 on drafts across stages of prefill, with EAGLE",
            ),
            help=f"set `{role.name}.parallel.pp: 1`, or leave the speculative flags out",
        )


RULES = (
    Rule(code="PD281", check=_stages_can_draft),
    Rule(code="PD321", check=_stages_pair),
    Rule(code="PD322", check=_decode_has_no_context_parallelism),
    Rule(code="PD326", check=_context_is_decoded_whole),
    Rule(code="PD327", check=_sparse_models_have_one_stage),
    Rule(code="PD323", check=_old_prefill_stages_without_attention_dp),
)
