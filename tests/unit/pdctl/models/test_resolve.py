"""Which source a fact comes from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pdctl.models.config_json import ConfigError
from pdctl.models.facts import ModelFacts
from pdctl.models.resolve import facts_of, with_facts
from pdctl.topology.load import load_text
from pdctl.topology.model import Model

CONFIG = {"num_attention_heads": 64, "num_key_value_heads": 8, "num_hidden_layers": 48}


def no_file(path: str) -> None:
    return None


def a_file(path: str) -> Mapping[str, Any]:
    return CONFIG


def a_broken_file(path: str) -> Mapping[str, Any]:
    raise ConfigError("is no JSON object")


def test_a_config_wins_over_the_name() -> None:
    facts = facts_of(Model(path="/models/DeepSeek-V3"), a_file)
    assert (facts.attention, facts.num_layers, facts.source) == ("gqa", 48, "config.json")


def test_without_a_config_the_name_tells() -> None:
    assert facts_of(Model(path="deepseek-ai/DeepSeek-V3"), no_file).attention == "mla"


def test_a_served_name_tells_where_the_path_does_not() -> None:
    model = Model(path="/models/dsr1", served_name="deepseek-ai/DeepSeek-R1")
    assert facts_of(model, no_file).num_experts == 256


def test_what_is_stated_wins_field_by_field() -> None:
    facts = facts_of(Model(path="Qwen/Qwen3-32B", kv_heads=2), no_file)
    assert (facts.attention, facts.num_kv_heads, facts.source) == ("gqa", 2, "table")
    stated = facts_of(Model(path="mine", attention="hybrid", experts=64), no_file)
    assert stated == ModelFacts(attention="hybrid", num_experts=64, source="stated")


def test_an_unknown_model_has_no_facts() -> None:
    assert facts_of(Model(path="mine"), no_file) == ModelFacts()


@pytest.mark.parametrize("served_name", [None, "Qwen/Qwen3-32B"])
def test_a_built_in_model_is_known_by_its_own_name_and_never_read_from_disk(served_name: str | None) -> None:
    model = Model(path="builtin:smollm2-135m-instruct", served_name=served_name)
    facts = facts_of(model, a_broken_file)
    assert (facts.num_heads, facts.num_kv_heads, facts.source) == (9, 3, "table")
    assert facts_of(Model(path="builtin:nobody-knows"), a_broken_file) == ModelFacts()


def test_a_broken_config_is_a_warning_and_stated_facts_stay() -> None:
    text = "schema: pdctl/v1\nname: demo\nmodel: {path: /m, kv_heads: 4}\nengine: {kind: reference}\n"
    topology = load_text(text + "prefill: {}\ndecode: {}\n").require()
    found, (fault,) = with_facts(topology, a_broken_file)
    assert found.facts == ModelFacts(num_kv_heads=4)
    assert (fault.code, fault.severity, fault.path) == ("PD270", "warning", "model.path")
    assert fault.message == "`config.json` of the model is no JSON object"
