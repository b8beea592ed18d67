"""Flags that SGLang takes only together with another one, or with a model that has what they are for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, stated_arg
from pdctl.rules.sglang.reading import switch
from pdctl.topology.model import Role, Topology

_POLICIES_WITH_PRIORITY = ("fcfs", "lof")

# Flags that need another one, in the releases that have them: srt/arg_groups/validation_hook.py,
# parallel_hook.py, serving_hook.py.
_NEED = {
    "enable-prefill-cp": "cp-strategy",
    "export-metrics-to-file": "export-metrics-to-file-dir",
    "ssl-keyfile": "ssl-certfile",
    "ssl-certfile": "ssl-keyfile",
    "ssl-ca-certs": "ssl-certfile",
}

# Kinds of attention that have no index; of MLA models some have one, which the kind doesn't tell.
_WITHOUT_INDEX = frozenset({"mha", "gqa", "hybrid", "sliding"})


def _flags_have_their_companions(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        for stated, problem, hint in _problems(topology, role):
            yield at_value(
                topology, stated.path, "PD344", problem, notes=("SGLang refuses to start",), help=hint
            )


def _problems(topology: Topology, role: Role) -> Iterator[tuple[Stated, str, str]]:
    """Where, what and what to do."""
    for flag, other in _NEED.items():
        stated = _set(topology, role, flag)
        if stated is not None and _set(topology, role, other) is None:
            yield stated, f"`{flag}` needs `{other}`", f"set `{other}` beside it"
    yield from _of_priorities(topology, role)
    adapters = _set(topology, role, "enable-lora")
    shape = ("max-lora-rank", "lora-target-modules")
    if adapters is not None and _set(topology, role, "lora-paths") is None:
        missing = [f"`{flag}`" for flag in shape if _set(topology, role, flag) is None]
        if missing:
            yield (
                adapters,
                f"`enable-lora` without adapters needs {' and '.join(missing)}",
                "set `lora-paths`, or both `max-lora-rank` and `lora-target-modules`",
            )


def _of_priorities(topology: Topology, role: Role) -> Iterator[tuple[Stated, str, str]]:
    """srt/arg_groups/validation_hook.py, check_server_args."""
    by_priority = switch(topology, role, "enable-priority-scheduling")
    policy = None if by_priority is None else _set(topology, role, "schedule-policy")
    if policy is not None and policy.value not in _POLICIES_WITH_PRIORITY:
        allowed = " or ".join(f"`{each}`" for each in _POLICIES_WITH_PRIORITY)
        problem = f"priorities can't be had with `schedule-policy: {policy.value}`"
        yield policy, problem, f"set it to {allowed}"
    retraction = _set(topology, role, "retraction-policy") if by_priority is None else None
    if retraction is not None and retraction.value == "priority":
        yield retraction, "`retraction-policy: priority` needs `enable-priority-scheduling`", "set both"


def _set(topology: Topology, role: Role, flag: str) -> Stated | None:
    """Where a flag is given, to a value or as a switch."""
    stated = stated_arg(topology, role, flag)
    return None if stated is None or stated.value is False else stated


def _hisparse_has_a_sparse_model(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/hisparse_hook.py, validate_hisparse: of MLA models only some are meant."""
    if topology.facts.attention not in _WITHOUT_INDEX:
        return
    for role in topology.roles:
        yield from _hisparse(topology, role)


def _hisparse(topology: Topology, role: Role) -> Iterable[Diagnostic]:
    stated = stated_arg(topology, role, "enable-hisparse")
    if stated is not None and stated.value is True:
        yield at_value(
            topology,
            stated.path,
            "PD345",
            f"`enable-hisparse` is for sparse attention, and `{topology.model.name}` has none",
            notes=(f"its attention is `{topology.facts.attention}`; SGLang refuses to start",),
            help="remove the flag",
        )


RULES = (
    Rule(code="PD344", check=_flags_have_their_companions),
    Rule(code="PD345", check=_hisparse_has_a_sparse_model),
)
