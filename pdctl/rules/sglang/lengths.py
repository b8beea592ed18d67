"""How long a request may be: no longer than the model was made for, unless that is said."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import is_true, number
from pdctl.topology.model import Role, Topology

_VARIABLE = "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN"
_OVERRIDES = "json-model-override-args"  # may raise the model's own


def _models_are_that_long(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/configs/model_config.py, _derive_context_length, 0.5.9 to 0.5.23."""
    longest = topology.facts.context_length
    if longest is None:
        return
    for role in topology.roles:
        stated = stated_arg(topology, role, "context-length")
        num_tokens = number(stated)
        if stated is None or num_tokens is None or num_tokens <= longest or _is_allowed(topology, role):
            continue
        yield at_value(
            topology,
            stated.path,
            "PD331",
            f"a context of {num_tokens} tokens is longer than the model's own, {longest}",
            # A folder of that name may have been changed for longer texts.
            severity=Severity.WARNING if _is_guessed(topology) else Severity.ERROR,
            notes=("SGLang refuses to start",),
            help=f'set {longest} or less, or `{_VARIABLE}: "1"` under `env`',
        )


def _is_allowed(topology: Topology, role: Role) -> bool:
    if stated_arg(topology, role, _OVERRIDES) is not None:
        return True
    return all(
        is_true(variables.get(_VARIABLE)) for variables in process_variables(topology, role, _VARIABLE)
    )


def _is_guessed(topology: Topology) -> bool:
    return topology.facts.source == "table" and topology.model.context_length is None


RULES = (Rule(code="PD331", check=_models_are_that_long),)
