"""Experts: how they are spread over ranks, balanced and overlapped."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.reading import (
    a2a_backend,
    is_at_most,
    num_experts_groups,
    number,
    switch,
    word,
)
from pdctl.topology.model import Role, Topology

_LAST_PICKING_FREELY = "0.5.16"  # later releases check the dispatch algorithm
_LAST_WITHOUT_CUTEDSL_CHECK = "0.5.16"
_LAST_OVERLAP_FOR_A2A_ALONE = "0.5.14"  # later ones overlap the collectives of attention DP too


def _experts_divide(topology: Topology) -> Iterable[Diagnostic]:
    """SGLang has no check of its own: it fails while it places the experts."""
    num_experts = topology.facts.num_experts
    if not num_experts:
        return
    for role in topology.roles:
        stated = stated_arg(topology, role, "ep-num-redundant-experts")
        redundant, groups = number(stated) or 0, num_experts_groups(topology, role)
        if (num_experts + redundant) % groups:
            more = redundant + groups - (num_experts + redundant) % groups
            total = f"{num_experts} + {redundant} redundant" if redundant else str(num_experts)
            yield at_value(
                topology,
                (role.name, "parallel", "ep") if stated is None else stated.path,
                "PD271",
                f"{total} experts can't be shared evenly by {groups} ranks of `{role.name}`",
                notes=(_why_groups(topology, role),),
                help=f"set `ep-num-redundant-experts: {more}`, or another width",
            )


def _why_groups(topology: Topology, role: Role) -> str:
    backend = a2a_backend(topology, role)
    if backend == "none":
        return f"`{role.name}.parallel.ep` is {role.parallel.ep}"
    return f"the all-to-all backend `{backend}` spreads experts over the whole `tp: {role.parallel.tp}`"


def _normal_dispatch_on_prefill_only(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/moe_hook.py, handle_a2a_moe."""
    role = topology.decode
    stated = stated_arg(topology, role, "deepep-mode")
    if a2a_backend(topology, role) == "deepep" and stated is not None and stated.value == "normal":
        yield at_value(
            topology,
            stated.path,
            "PD272",
            "decode dispatches with DeepEP's normal mode, which switches CUDA graphs off",
            severity=Severity.WARNING,
            notes=("it is made for the many tokens of prefill",),
            help="set `deepep-mode: low_latency` under `decode.args`",
        )


def _dense_width(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/validation_hook.py, check_server_args."""
    for role in topology.roles:
        stated = stated_arg(topology, role, "moe-dense-tp-size")
        size = number(stated)
        if stated is not None and size is not None and size not in (1, role.parallel.tp):
            yield at_value(
                topology,
                stated.path,
                "PD274",
                f"`moe-dense-tp-size: {size}` is neither 1 nor the `tp: {role.parallel.tp}` of `{role.name}`",
                notes=("SGLang refuses to start",),
                help="set 1, or remove it",
            )


def _experts_are_spread(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/moe_hook.py: EPLB needs more than one rank to balance."""
    for role in topology.roles:
        stated = switch(topology, role, "enable-eplb")
        if stated is not None and num_experts_groups(topology, role) == 1:
            yield at_value(
                topology,
                stated.path,
                "PD275",
                f"`enable-eplb` balances experts over ranks, and `{role.name}` has them all on each",
                notes=("SGLang refuses to start",),
                help=f"set `{role.name}.parallel.ep`, or remove the flag",
            )


def _two_batches_overlap_something(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/validation_hook.py, check_two_batch_overlap."""
    for role in topology.roles:
        stated = switch(topology, role, "enable-two-batch-overlap")
        counts_attn_dp = not is_at_most(topology, _LAST_OVERLAP_FOR_A2A_ALONE)
        if (
            stated is not None
            and a2a_backend(topology, role) == "none"
            and not (counts_attn_dp and role.parallel.attn_dp > 1)
            and switch(topology, role, "enable-waterfill") is None  # implies DeepEP
        ):
            also = f" or `{role.name}.parallel.attn_dp`" if counts_attn_dp else ""
            yield at_value(
                topology,
                stated.path,
                "PD276",
                "two-batch overlap has no communication of experts to overlap with",
                notes=("SGLang refuses to start",),
                help=f"set `moe-a2a-backend`{also}, or remove the flag",
            )


def _replicas_are_picked_alike(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/parallel_hook.py, handle_eplb_and_dispatch."""
    if is_at_most(topology, _LAST_PICKING_FREELY):
        return
    for role in topology.roles:
        stated = stated_arg(topology, role, "ep-dispatch-algorithm")
        if (
            stated is not None
            and stated.value in ("static", "lp")
            and a2a_backend(topology, role) == "none"
            and switch(topology, role, "enable-waterfill") is None  # implies DeepEP
        ):
            yield at_value(
                topology,
                stated.path,
                "PD286",
                f"the dispatch algorithm `{stated.value}` picks another copy of an expert on each rank",
                notes=("that needs an all-to-all backend; SGLang refuses to start without",),
                help="set `dynamic`, or `moe-a2a-backend`",
            )


def _cutedsl_has_its_mode(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/moe_hook.py, handle_a2a_moe."""
    if is_at_most(topology, _LAST_WITHOUT_CUTEDSL_CHECK):
        return
    for role in topology.roles:
        mode = stated_arg(topology, role, "deepep-mode")
        runner = word(stated_arg(topology, role, "moe-runner-backend"))
        if (
            mode is not None
            and mode.value == "normal"
            and runner == "flashinfer_cutedsl"
            and a2a_backend(topology, role) == "deepep"
        ):
            yield at_value(
                topology,
                mode.path,
                "PD283",
                "`flashinfer_cutedsl` has no normal mode of DeepEP",
                notes=("SGLang refuses to start",),
                help="set `deepep-mode: low_latency`, for prefill too",
            )


RULES = (
    Rule(code="PD271", check=_experts_divide),
    Rule(code="PD272", check=_normal_dispatch_on_prefill_only),
    Rule(code="PD274", check=_dense_width),
    Rule(code="PD275", check=_experts_are_spread),
    Rule(code="PD276", check=_two_batches_overlap_something),
    Rule(code="PD283", check=_cutedsl_has_its_mode),
    Rule(code="PD286", check=_replicas_are_picked_alike),
)
