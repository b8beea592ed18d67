"""Variables that SGLang doesn't know, no longer reads, or reads otherwise than they look."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.reading import NEWEST_READ, backend_of, is_at_most
from pdctl.rules.sglang.variables import PREFIX, modern_name, variables
from pdctl.topology.model import Env, Topology
from pdctl.topology.nearest import nearest
from pdctl.topology.source import DocumentPath, dotted

# Variables that recipes still carry and no release in the table reads, with what took their place.
_GONE: Mapping[str, str] = {
    "MOONCAKE_CONFIG_PATH": "set `transfer.ib_devices`; no metadata server is needed either",
    "SGLANG_HACK_SEQ_BOOTSTRAP_ROOM": "remove it",
    "SGLANG_NUM_RESERVED_DECODE_TOKENS": "set the flag `num-reserved-decode-tokens`",
    "SGLANG_DECODE_BOOTSTRAP_TIMEOUT": "set `transfer.waiting_timeout_s`",
    "SGLANG_MOONCAKE_TRANS_THREAD": "set `transfer.threads`",
    "SGLANG_HACK_DEEPEP_NUM_SMS": "set the flag `deepep-config`",
    "SGLANG_HACK_DEEPEP_NEW_MODE": "set the flag `deepep-config`",
}
# Those that the table knows from older releases, with what took their place.
_REPLACED: Mapping[str, str] = {
    "SGLANG_DISAGG_STAGING_BUFFER_SIZE_MB": "remove it: the buffer is sized by the prefill chunk",
    "SGLANG_DISABLE_TP_MEMORY_INBALANCE_CHECK": "the check is off unless its `ENABLE` variable is set",
    "SGLANG_CUTEDSL_MOE_NVFP4_DISPATCH": "set `SGLANG_MOE_NVFP4_DISPATCH`",
    "SGLANG_FP4_GEMM_BACKEND": "set the flag `fp4-gemm-backend`",
    "SGLANG_ENABLE_SPEC_V2": "remove it: that is the only way now",
}
# Mooncake asks whether they are there, not what they say (mooncake-transfer-engine/src/config.cpp).
_PRESENCE_TESTED = frozenset({"MC_FORCE_TCP", "MC_FORCE_MNNVL", "MC_FORCE_HCA", "MC_INTRANODE_NVLINK"})
_OFF_WORDS = frozenset({"0", "false", "no", "off", ""})

_BOOL_WORDS = frozenset({"true", "1", "yes", "y", "false", "0", "no", "n"})  # srt/environ.py, EnvBool

# What a plan sets by itself: SGLang refuses to start with one of them, or finds other devices than planned.
_DEVICE_VARIABLES = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "ASCEND_RT_VISIBLE_DEVICES",
    }
)
_REFUSED = "SGLANG_DISAGGREGATION_SAMPLING_MASK_MAX_TOKENS"  # arg_groups/validation_hook.py


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variable:
    name: str
    value: str
    path: DocumentPath


def _variables(topology: Topology) -> Iterator[_Variable]:
    """Every variable of engine processes in the document."""
    blocks: list[tuple[DocumentPath, Env]] = [(("defaults", "env"), topology.defaults.env)]
    blocks += [((role.name, "env"), role.env) for role in topology.roles]
    nodes = topology.cluster.nodes
    if not isinstance(nodes, int):
        blocks += [(("cluster", "nodes", index, "env"), host.env) for index, host in enumerate(nodes)]
    for path, env in blocks:
        for name, value in env.items():
            yield _Variable(name=name, value=value, path=(*path, name))


def _names_are_known(topology: Topology) -> Iterable[Diagnostic]:
    for variable in _variables(topology):
        name = modern_name(variable.name)
        if not name.startswith(PREFIX) or name in _GONE:
            continue
        entry = variables().get(name)
        if entry is None:
            # Without the prefix that all of them have, which would make any two alike.
            near = nearest(name.removeprefix(PREFIX), (each.removeprefix(PREFIX) for each in variables()))
            hint = f"did you mean `{PREFIX}{near}`?" if near is not None else "remove it"
            yield _warning(topology, variable, "PD290", f"SGLang has no variable `{name}`", hint)
        elif not entry.is_in(topology.engine.version or NEWEST_READ):
            yield _warning(
                topology,
                variable,
                "PD290",
                f"`{name}` came with SGLang {entry.first}",
                "remove it, or upgrade",
            )


def _names_are_still_read(topology: Topology) -> Iterable[Diagnostic]:
    for variable in _variables(topology):
        name = modern_name(variable.name)
        entry = variables().get(name) if name.startswith(PREFIX) else None
        if name in _GONE:
            yield _warning(topology, variable, "PD291", f"SGLang no longer reads `{name}`", _GONE[name])
        elif entry is not None and entry.last != NEWEST_READ and not is_at_most(topology, entry.last):
            yield _warning(
                topology,
                variable,
                "PD291",
                f"SGLang reads `{name}` up to {entry.last} only",
                _REPLACED.get(name, "remove it"),
            )


def _presence_is_meant(topology: Topology) -> Iterable[Diagnostic]:
    for variable in _variables(topology):
        is_off = variable.value.strip().lower() in _OFF_WORDS
        if variable.name in _PRESENCE_TESTED and is_off and backend_of(topology) == "mooncake":
            yield _warning(
                topology,
                variable,
                "PD292",
                f"`{variable.name}: {variable.value!r}` counts as set: Mooncake asks whether it is there",
                "remove it",
            )


def _values_parse(topology: Topology) -> Iterable[Diagnostic]:
    for variable in _variables(topology):
        entry = variables().get(modern_name(variable.name)) if variable.name.startswith("SGL") else None
        if entry is not None and not _parses(variable.value, entry.kind):
            yield _warning(
                topology,
                variable,
                "PD294",
                f"`{variable.name}` takes {_WANTED[entry.kind or '']}, found {variable.value!r}",
                "SGLang logs a warning and takes its default: write a value that it reads",
            )


_WANTED = {"bool": "true or false", "int": "a whole number", "float": "a number"}


def _parses(value: str, kind: str | None) -> bool:
    try:
        match kind:
            case "bool":
                return value.strip().lower() in _BOOL_WORDS
            case "int":
                int(value)
            case "float":
                float(value)
            case _:
                pass
    except ValueError:
        return False
    return True


def _plan_keeps_its_variables(topology: Topology) -> Iterable[Diagnostic]:
    for variable in _variables(topology):
        if variable.name in _DEVICE_VARIABLES:
            why, hint = (
                "the plan gives each process its devices",
                "remove it; `cluster.devices_per_node` counts",
            )
        elif modern_name(variable.name) == _REFUSED and not is_at_most(topology, "0.5.20"):
            why, hint = "SGLang refuses to start with it", "set the flag `sampling-mask-max-tokens`"
        else:
            continue
        yield at_value(topology, variable.path, "PD293", f"`{variable.name}` can't be set: {why}", help=hint)


def _warning(topology: Topology, variable: _Variable, code: str, message: str, hint: str) -> Diagnostic:
    return Diagnostic(
        code=code,
        message=message,
        severity=Severity.WARNING,
        span=topology.source.key(*variable.path),
        path=dotted(variable.path),
        help=hint,
    )


RULES = (
    Rule(code="PD290", check=_names_are_known),
    Rule(code="PD291", check=_names_are_still_read),
    Rule(code="PD292", check=_presence_is_meant),
    Rule(code="PD293", check=_plan_keeps_its_variables),
    Rule(code="PD294", check=_values_parse),
)
