"""What is known of a topology's model: what the document states, else its `config.json`, else the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.models.config_json import ConfigError, facts_of_config, read_config
from pdctl.models.facts import ModelFacts
from pdctl.models.known import known_facts
from pdctl.topology.model import BUILTIN_PREFIX, Model, Topology

ReadConfig = Callable[[str], Mapping[str, Any] | None]


def facts_of(model: Model, read: ReadConfig = read_config) -> ModelFacts:
    """The facts of `model`; what the document states wins, field by field. Raises `ConfigError`.

    `read` gives the parsed `config.json` of a path, None where there is none.
    """
    config = None if model.is_builtin else read(model.path)
    if config is not None:
        found = facts_of_config(config)
    else:
        name = model.path.removeprefix(BUILTIN_PREFIX)
        found = known_facts(name) or known_facts(model.name) or ModelFacts()
    return _with_stated(found, model)


def with_facts(topology: Topology, read: ReadConfig = read_config) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """The topology with the facts of its model, and what was wrong with the model's file."""
    try:
        return replace(topology, facts=facts_of(topology.model, read)), ()
    except ConfigError as error:
        fault = Diagnostic(
            code="PD270",
            message=f"`config.json` of the model {error}",
            severity=Severity.WARNING,
            span=topology.source.value("model", "path"),
            path="model.path",
            notes=("rules that need to know the model are not checked",),
            help="repair the model's folder, or state `model.attention` and what else is known of it",
        )
        return replace(topology, facts=_with_stated(ModelFacts(), topology.model)), (fault,)


def _with_stated(found: ModelFacts, model: Model) -> ModelFacts:
    stated = {
        "attention": model.attention,
        "num_layers": model.layers,
        "num_kv_heads": model.kv_heads,
        "head_dim": model.head_dim,
        "num_experts": model.experts,
        "context_length": model.context_length,
        "source": None if model.attention is None else "stated",
    }
    return replace(found, **{name: value for name, value in stated.items() if value is not None})  # pyright: ignore[reportArgumentType]
