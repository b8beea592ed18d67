"""Speculative decoding as SGLang takes it: an algorithm that exists, with numbers that go together."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flagtable.shelf import choose_table
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, stated_arg
from pdctl.rules.sglang.reading import first_stated, switch, word
from pdctl.topology.model import Role, Topology
from pdctl.topology.nearest import nearest, suggest

# srt/speculative/spec_info.py, 0.5.23. Plug-ins may register others.
_ALGORITHMS = (
    *("EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM", "FROZEN_KV_MTP", "DFLASH", "DSPARK", "UNO"),
    "NONE",
)
_TREES = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE"})  # that draft step by step, in branches

_STEPS, _BRANCHES, _DRAFTS = (
    "speculative-num-steps",
    "speculative-eagle-topk",
    "speculative-num-draft-tokens",
)


def _algorithms_exist(topology: Topology) -> Iterable[Diagnostic]:
    """Its parser takes any word in most releases; where it has choices, PD234 says so."""
    for role in topology.roles:
        stated = algorithm_of(topology, role)
        name = word(stated)
        if stated is None or name is None or name.upper() in _ALGORITHMS or _has_choices(topology):
            continue
        yield at_value(
            topology,
            stated.path,
            "PD332",
            f"SGLang has no speculative algorithm `{name}`",
            severity=Severity.WARNING if nearest(name, _ALGORITHMS) is None else Severity.ERROR,
            notes=("it ends at start, unless a plug-in registers one of that name",),
            help=suggest(name, _ALGORITHMS),
        )


def _has_choices(topology: Topology) -> bool:
    chosen = choose_table("sglang", topology.engine.version)
    flag = None if chosen is None else chosen.table.flag("speculative-algorithm")
    return flag is not None and flag.choices is not None


def _numbers_go_together(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/speculative_hook.py, _handle_eagle_family; srt/server_args.py of 0.5.9.

    It chooses all three or none, and compares what it didn't choose. Steps and branches are enough: one
    branch has a token for each step, and one more.
    """
    for role in topology.roles:
        name = (word(algorithm_of(topology, role)) or "").upper()
        if name not in _TREES or switch(topology, role, "speculative-adaptive") is not None:
            continue
        found = {flag: stated_arg(topology, role, flag) for flag in (_STEPS, _BRANCHES, _DRAFTS)}
        stated = next((each for each in found.values() if each is not None), None)
        missing = [f"`{flag}`" for flag in (_STEPS, _BRANCHES) if found[flag] is None]
        if stated is not None and missing:
            yield at_value(
                topology,
                stated.path,
                "PD333",
                f"some numbers for drafts are stated, and no {' or '.join(missing)}",
                notes=("SGLang ends at start: it chooses these numbers together, or not at all",),
                help=f"state `{_STEPS}`, `{_BRANCHES}` and `{_DRAFTS}`, or none of them",
            )


def algorithm_of(topology: Topology, role: Role) -> Stated | None:
    return first_stated(topology, role, "speculative-algorithm", "speculative-algo")


RULES = (
    Rule(code="PD332", check=_algorithms_exist),
    Rule(code="PD333", check=_numbers_go_together),
)
