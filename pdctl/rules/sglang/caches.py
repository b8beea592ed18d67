"""Caches of prompts: what lies behind the radix cache needs one, and decode keeps none by default."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value
from pdctl.rules.sglang.reading import is_at_most, switch
from pdctl.topology.model import Role, Topology

_HIERARCHICAL, _LMCACHE = "enable-hierarchical-cache", "enable-lmcache"
_NO_RADIX, _DECODE_RADIX = "disable-radix-cache", "disaggregation-decode-enable-radix-cache"
_LAST_LMCACHE_UNCHECKED = "0.5.22"  # 0.5.20 takes it, 0.5.23 doesn't


def _caches_have_a_radix_cache(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/kv_cache_hook.py, handle_cache_compatibility; srt/server_args.py of 0.5.9."""
    flags = (_HIERARCHICAL,) if is_at_most(topology, _LAST_LMCACHE_UNCHECKED) else (_HIERARCHICAL, _LMCACHE)
    for role in topology.roles:
        stated = {flag: each for flag in flags if (each := switch(topology, role, flag)) is not None}
        why = _why_none(topology, role)
        if why is not None:
            yield from (
                _refused(topology, each, f"`{flag}` needs a radix cache, and {why}", role)
                for flag, each in stated.items()
            )
        elif len(stated) > 1:
            message = f"`{_LMCACHE}` and `{_HIERARCHICAL}` exclude each other"
            yield _refused(topology, stated[_LMCACHE], message, role)


def _why_none(topology: Topology, role: Role) -> str | None:
    """Decode has a radix cache exactly when this flag asks for it, whatever else is stated."""
    if role.name == "decode":
        return None if switch(topology, role, _DECODE_RADIX) else "decode keeps none"
    return f"`{_NO_RADIX}` is set" if switch(topology, role, _NO_RADIX) else None


def _refused(topology: Topology, stated: Stated, message: str, role: Role) -> Diagnostic:
    return at_value(
        topology,
        stated.path,
        "PD330",
        message,
        notes=("SGLang refuses to start",),
        help="keep one of them" if role.name == "prefill" else "set it under `prefill.args` alone",
    )


RULES = (Rule(code="PD330", check=_caches_have_a_radix_cache),)
