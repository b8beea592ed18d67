"""Staging buffers where SGLang refuses them: it says so only after the weights are loaded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.transfer import CONTEXT_FLAGS
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.attention import can_stage
from pdctl.rules.sglang.paging import page_size
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import backend_of, is_true, number, switch, word
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath

_VARIABLE = "SGLANG_DISAGG_STAGING_BUFFER"


def _staging_can_start(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/disaggregation/prefill.py and decode.py, arg_groups/pd_disaggregation_hook.py."""
    where = _switched_on_at(topology)
    if where is None:
        return
    for problem, remedy in _problems(topology):
        yield at_value(
            topology,
            where,
            "PD315",
            f"staging buffers can't be used {problem}",
            notes=("SGLang ends with an error about it, in part only after it has loaded the model",),
            help=remedy,
        )


def _switched_on_at(topology: Topology) -> DocumentPath | None:
    """Where it is decided: the field, also by `auto`, which chooses it only where it works; or a variable."""
    found = (
        variables[_VARIABLE]
        for role in topology.roles
        for variables in process_variables(topology, role, _VARIABLE)
        if is_true(variables.get(_VARIABLE))
    )
    return next((each.path for each in found), None)


def _problems(topology: Topology) -> Iterator[tuple[str, str]]:
    prefill = topology.prefill
    auto = "set `transfer.staging: auto`"
    if not can_stage(topology):
        yield f"over `{topology.transfer.backend}` in this engine", auto
    if topology.facts.is_mla:
        yield "with an MLA model, whose KV is whole on every rank", auto
    release = Release(version=topology.engine.version)
    if prefill.parallel.pp > 1 and not release.stages_from_pipelines(backend_of(topology)):
        yield "with pipeline stages", "set `prefill.parallel.pp: 1`, or use mooncake with 0.5.18 or newer"
    has_context_ranks = any(switch(topology, prefill, flag) for flag in CONTEXT_FLAGS)
    if has_context_ranks and not release.stages_from_context_ranks:
        yield "with context parallelism", "remove its flag, or use 0.5.20 or newer"
    chunk, pages = number(stated_arg(topology, prefill, "chunked-prefill-size")), page_size(topology, prefill)
    if chunk is not None and chunk <= 0:
        yield "without chunked prefill", "set a positive `chunked-prefill-size`"
    elif chunk is not None and pages is not None and (chunk // prefill.parallel.attn_dp) % pages.tokens:
        yield "with chunks that are no multiple of the page size", "set a multiple of the page size"
    policies = {
        word(stated_arg(topology, role, "disaggregation-decode-allocation-policy")) for role in topology.roles
    }
    if "prefill_complete" in policies:
        yield "with the allocation policy `prefill_complete`", "remove the policy, or the staging buffers"


RULES = (Rule(code="PD315", check=_staging_can_start),)
