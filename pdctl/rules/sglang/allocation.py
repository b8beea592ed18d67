"""How decode gives out KV pages: the policy of both roles, and a radix cache of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import DCP_FLAGS, first_stated, is_at_most, is_true, number, switch, word
from pdctl.topology.model import Role, Topology

POLICY_FLAG = "disaggregation-decode-allocation-policy"
RADIX_FLAG = "disaggregation-decode-enable-radix-cache"
_STAGING, _RUST_SERVER = "SGLANG_DISAGG_STAGING_BUFFER", "SGLANG_RUST_SERVER"


def _completed_prefill_is_alone(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/pd_disaggregation_hook.py, _validate_prefill_complete (from 0.5.22 on)."""
    if is_at_most(topology, "0.5.21"):
        return  # an unknown flag there, which the flag table says
    for role in topology.roles:
        stated = stated_arg(topology, role, POLICY_FLAG)
        if stated is None or stated.value != "prefill_complete":
            continue
        for problem in _against_completed_prefill(topology, role):
            yield at_value(
                topology,
                stated.path,
                "PD325",
                f"the allocation policy `prefill_complete` can't be had with {problem}",
                notes=(f"SGLang refuses to start `{role.name}`",),
                help="remove the flag: `early` works everywhere",
            )


def _against_completed_prefill(topology: Topology, role: Role) -> Iterator[str]:
    parallel = role.parallel
    if topology.transfer.backend not in ("mooncake", "mooncake_tcp"):
        yield f"the backend `{topology.transfer.backend}`"
    for name, size in (("pp", parallel.pp), ("attn_cp", parallel.attn_cp)):
        if size > 1:
            yield f"`{name}: {size}`"
    if (number(first_stated(topology, role, *DCP_FLAGS)) or 1) > 1:
        yield "decode context parallelism"
    if parallel.tp > 1:
        # Shards of attention are meant, but the check of 0.5.22 and 0.5.23 doesn't count attention DP.
        yield f"`tp: {parallel.tp}`"
    for flag in _switches_against(topology, role):
        if switch(topology, role, flag) is not None:
            yield f"`{flag}`"
    for variables in process_variables(topology, role, _STAGING, _RUST_SERVER):
        for name, stated in variables.items():
            if is_true(stated):
                yield f"`{name}`"


def _switches_against(topology: Topology, role: Role) -> tuple[str, ...]:
    hicache = "enable-hierarchical-cache"
    everywhere = ("enable-pd-role-switch", "enable-hisparse")
    if role.name == "decode":
        return (*everywhere, RADIX_FLAG, hicache)
    # Prefill may keep pages in host memory, and write them when it evicts them.
    has_storage = stated_arg(topology, role, "hicache-storage-backend") is not None
    writes_late = word(stated_arg(topology, role, "hicache-write-policy")) == "write_back"
    return everywhere if writes_late and not has_storage else (*everywhere, hicache)


def _decode_can_cache_prefixes(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/pd_disaggregation_hook.py, handle_pd_disaggregation."""
    role = topology.decode
    stated = switch(topology, role, RADIX_FLAG)
    if stated is not None and switch(topology, role, "enable-hisparse") is not None:
        yield at_value(
            topology,
            stated.path,
            "PD328",
            "decode can't cache prefixes and keep sparse KV in host memory",
            notes=("SGLang refuses to start with both `enable-hisparse` and this flag",),
            help="remove one of them",
        )


RULES = (
    Rule(code="PD325", check=_completed_prefill_is_alone),
    Rule(code="PD328", check=_decode_can_cache_prefixes),
)
