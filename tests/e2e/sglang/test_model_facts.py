"""What pdctl reads from a `config.json`, SGLang 0.5.23 reads from it too."""

from __future__ import annotations

import pytest

from pdctl.models.config_json import facts_of_config

pytestmark = pytest.mark.slow

ARCHITECTURES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_moe": "Qwen3_5MoeForConditionalGeneration",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_linear": "KimiLinearForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama4": "Llama4ForConditionalGeneration",
    "gemma3_text": "Gemma3ForCausalLM",
    "falcon_h1": "FalconH1ForCausalLM",
    "granitemoehybrid": "GraniteMoeHybridForCausalLM",
}


@pytest.mark.parametrize("model_type", ARCHITECTURES)
def test_sglang_takes_the_model_for_the_same(model_type: str, real_parser) -> None:
    answer = real_parser("0.5.23").model(model_type, ARCHITECTURES[model_type])
    assert answer.error is None
    real = answer.values
    facts = facts_of_config(real["config"])
    assert facts.num_layers == real["num_layers"]
    assert facts.num_heads == real["num_heads"]
    assert facts.num_kv_heads == real["num_kv_heads"]
    assert (facts.attention == "sliding") == real["has_window_pool"]
    if facts.attention != "hybrid":  # of those, SGLang says how their other layers attend
        assert facts.is_mla == real["is_mla"]
