"""Numbers outside the range that means something, and words for which SGLang has no meaning.

Its parser takes any number and, for these flags, any word.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, stated_arg
from pdctl.rules.sglang.reading import word
from pdctl.topology.model import Topology
from pdctl.topology.nearest import nearest, suggest


@dataclass(frozen=True, slots=True, kw_only=True)
class _Range:
    """What a number must lie in, in words too, and what becomes of others."""

    wanted: str
    why: str
    above: float | None = None
    at_least: float | None = None
    at_most: float | None = None

    def holds(self, number: float) -> bool:
        return (
            (self.above is None or number > self.above)
            and (self.at_least is None or number >= self.at_least)
            and (self.at_most is None or number <= self.at_most)
        )


_REFUSES = "SGLang refuses to start"
_RANGES = {
    # srt/arg_groups/validation_hook.py, check_server_args, and lora_hook.py: in all releases.
    "tokenizer-worker-num": _Range(wanted="1 or more", at_least=1, why=_REFUSES),
    "detokenizer-worker-num": _Range(wanted="1 or more", at_least=1, why=_REFUSES),
    "max-loras-per-batch": _Range(wanted="1 or more", at_least=1, why=_REFUSES),
    "schedule-conservativeness": _Range(wanted="0 or more", at_least=0, why=_REFUSES),
    # srt/managers/tp_worker.py asserts that it is positive, once the model is loaded.
    "max-running-requests": _Range(
        wanted="1 or more", at_least=1, why="the server ends with an assertion once the model is loaded"
    ),
    # The memory that is left beside weights and KV cache is 1 minus this share of the whole.
    "mem-fraction-static": _Range(
        wanted="a share above 0, at most 1, such as 0.85",
        above=0,
        at_most=1,
        why="weights and KV cache get this share of the device's memory",
    ),
}

_ALGORITHMS = (
    "auto",
    "deepseek",
    "deepseek_hierarchical",
    "deepseek_vec",
    "deepseek_vec_hierarchical",
    "elasticity_aware",
    "elasticity_aware_hierarchical",
)
# srt/platforms/device_mixin.py, and torch's own; packages outside may bring devices of other names.
_DEVICES = ("cuda", "cpu", "xpu", "npu", "hpu", "musa", "mps", "mlu")


def _numbers_are_in_range(topology: Topology) -> Iterable[Diagnostic]:
    for flag, limits in _RANGES.items():
        for stated in _places(topology, flag):
            number = _number(stated)
            if number is not None and not limits.holds(number):
                yield at_value(
                    topology,
                    stated.path,
                    "PD342",
                    f"`{flag}` must be {limits.wanted}, found {stated.value}",
                    notes=(limits.why,),
                )


# Plug-ins that NIXL's own wheels and manuals name; anybody can write one.
_NIXL_PLUGINS = ("UCX", "LIBFABRIC", "Mooncake", "UCCL", "GDS", "GDS_MT", "POSIX", "OBJ", "GPUNETIO")


def _plugins_are_spelled_right(topology: Topology) -> Iterable[Diagnostic]:
    """NIXL finds a plug-in by its file, whose name has the case of these."""
    name = topology.transfer.nixl.plugin
    near = None if name is None or name in _NIXL_PLUGINS else nearest(name, _NIXL_PLUGINS)
    if near is not None and topology.transfer.backend == "nixl":
        yield at_value(
            topology,
            ("transfer", "nixl", "plugin"),
            "PD343",
            f"NIXL has no plug-in `{name}`",
            severity=Severity.WARNING,
            notes=("one that you added yourself would be found",),
            help=f"did you mean `{near}`?",
        )


def _words_are_known(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/eplb/eplb_algorithms looks the algorithm up when experts are first placed anew."""
    for stated in _places(topology, "eplb-algorithm"):
        name = word(stated)
        if name is not None and name not in _ALGORITHMS:
            yield at_value(
                topology,
                stated.path,
                "PD343",
                f"SGLang has no EPLB algorithm `{name}`",
                notes=("its parser takes any word, and the server ends when it first places experts anew",),
                help=suggest(name, _ALGORITHMS),
            )
    for stated in _places(topology, "device"):
        name = word(stated)
        if name is not None and name not in _DEVICES:
            is_plain = name in ("gpu", "auto") or ":" in name
            yield at_value(
                topology,
                stated.path,
                "PD343",
                f"torch has no device `{name}`",
                severity=Severity.ERROR if is_plain else Severity.WARNING,
                notes=() if is_plain else ("a package outside SGLang may bring it",),
                help="leave `device` out, and SGLang finds it" if is_plain else suggest(name, _DEVICES),
            )


def _places(topology: Topology, flag: str) -> Iterable[Stated]:
    """Where the document states it for its roles, each place once."""
    found = (stated_arg(topology, role, flag) for role in topology.roles)
    return {stated.path: stated for stated in found if stated is not None}.values()


def _number(stated: Stated) -> float | None:
    try:
        return None if isinstance(stated.value, bool) else float(str(stated.value))
    except ValueError:
        return None  # PD233 tells


RULES = (
    Rule(code="PD342", check=_numbers_are_in_range),
    Rule(code="PD343", check=_words_are_known),
    Rule(code="PD343", check=_plugins_are_spelled_right),
)
