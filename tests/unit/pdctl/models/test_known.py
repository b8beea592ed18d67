"""The table of models."""

from __future__ import annotations

import json
from importlib.resources import files

import pytest

from pdctl.models.known import known_facts

ENTRIES = json.loads(files("pdctl").joinpath("models", "known.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "name",
    [
        "deepseek-ai/DeepSeek-R1",
        "deepseek-ai/DeepSeek-V3-0324",
        "deepseek-ai/DeepSeek-V3.1-Terminus",
        "/models/DeepSeek-R1-0528-NVFP4/",
        "DeepSeek-R1-0528-w4a8",
    ],
)
def test_variants_of_a_model_are_the_same_model(name: str) -> None:
    facts = known_facts(name)
    assert facts is not None
    assert (facts.attention, facts.num_experts, facts.source) == ("mla", 256, "table")


@pytest.mark.parametrize(
    "name", ["", "x", "DeepSeek-V3-5layer", "GLM-4.5-REAP-218B", "my-qwen3-32b", "Qwen3-32B-pruned", "v3"]
)
def test_another_name_is_another_model(name: str) -> None:
    assert known_facts(name) is None


@pytest.mark.parametrize(
    ("name", "attention"),
    [
        ("Qwen/Qwen3-32B-FP8", "gqa"),
        ("Qwen/Qwen3.5-397B-A17B-FP8", "hybrid"),
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", "hybrid"),
        ("openai/gpt-oss-120b", "sliding"),
        ("MiniMaxAI/MiniMax-M3", "sparse"),
        ("MiniMaxAI/MiniMax-M2", "gqa"),
        ("meta-llama/Llama-3.1-8B-Instruct", "gqa"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-70B", "gqa"),
        ("deepseek-ai/DeepSeek-V4-Pro", "mla"),
        ("moonshotai/Kimi-K2-Instruct-0905", "mla"),
        ("zai-org/GLM-4.5-FP8", "gqa"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "gqa"),
    ],
)
def test_attention_kinds_of_models_that_people_serve(name: str, attention: str) -> None:
    facts = known_facts(name)
    assert facts is not None
    assert facts.attention == attention


def test_names_stand_once_in_lower_case_and_every_line_has_its_source() -> None:
    names = [name for entry in ENTRIES for name in entry["names"]]
    assert len(names) == len(set(names))
    assert all(name == name.lower() for name in names)
    assert all(entry["source"] for entry in ENTRIES)
    assert {key for entry in ENTRIES for key in entry} <= {
        "names", "attention", "layers", "heads", "kv_heads", "head_dim", "experts", "context_length", "source"
    }  # fmt: skip
