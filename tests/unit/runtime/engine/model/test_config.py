"""Configs of the known families are understood; what is not computed is refused with its name."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runtime.engine.model.config import config_from_json, read_folder_config
from runtime.engine.model.errors import ModelError
from runtime.engine.model.rope_scaling import LinearScaling, Llama3Scaling

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-05,
    "rope_theta": 500000.0,
    "rope_scaling": {
        "factor": 32.0,
        "high_freq_factor": 4.0,
        "low_freq_factor": 1.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "tie_word_embeddings": True,
    "eos_token_id": [128001, 128008, 128009],
    "torch_dtype": "bfloat16",
}


def test_a_llama_3_config_of_before_transformers_5():
    config = config_from_json(LLAMA, {})
    assert (config.architecture, config.num_kv_heads, config.head_dim) == ("llama", 8, 64)
    assert config.rope_theta == 500000.0
    assert config.rope_scaling == Llama3Scaling(
        factor=32.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position=8192
    )
    assert config.has_tied_embeddings
    assert not config.has_qkv_bias
    assert config.eos_token_ids == (128001, 128008, 128009)


def test_rope_parameters_of_transformers_5_mean_the_same_as_the_older_keys():
    old = {
        key: value for key, value in LLAMA.items() if key not in ("rope_theta", "rope_scaling", "torch_dtype")
    }
    new = old | {"dtype": "bfloat16", "rope_parameters": LLAMA["rope_scaling"] | {"rope_theta": 500000.0}}
    assert config_from_json(new, {}) == config_from_json(LLAMA, {})


def test_linear_scaling_in_the_oldest_spelling():
    config = config_from_json(LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.0}}, {})
    assert config.rope_scaling == LinearScaling(factor=2.0)


def test_what_a_config_leaves_out_has_transformers_defaults():
    absent = (
        "num_key_value_heads",
        "head_dim",
        "rope_scaling",
        "rope_theta",
        "tie_word_embeddings",
        "eos_token_id",
    )
    config = config_from_json({key: value for key, value in LLAMA.items() if key not in absent}, {})
    assert (config.num_kv_heads, config.head_dim, config.rope_theta) == (32, 64, 10000.0)
    assert not config.has_tied_embeddings
    assert config.rope_scaling is None
    assert config.eos_token_ids == ()


def test_the_generation_config_adds_its_end_tokens():
    config = config_from_json(LLAMA | {"eos_token_id": 2}, {"eos_token_id": [7, 2]})
    assert config.eos_token_ids == (2, 7)


def test_qwen2_has_bias_on_qkv_alone_and_qwen3_norms_per_head():
    qwen2 = config_from_json(LLAMA | {"architectures": ["Qwen2ForCausalLM"]}, {})
    qwen3 = config_from_json(LLAMA | {"architectures": ["Qwen3ForCausalLM"]}, {})
    assert (qwen2.has_qkv_bias, qwen2.has_o_bias, qwen2.has_qk_norm) == (True, False, False)
    assert (qwen3.has_qkv_bias, qwen3.has_o_bias, qwen3.has_qk_norm) == (False, False, True)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"architectures": ["MambaForCausalLM"]},
            r"`MambaForCausalLM` is unknown.*`LlamaForCausalLM`.*Qwen3",
        ),
        ({"architectures": None, "model_type": "gpt2"}, "`gpt2` is unknown"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope scaling `yarn` is unknown"),
        ({"rope_scaling": {"rope_type": "linear"}}, "rope scaling `linear` lacks 'factor'"),
        ({"hidden_act": "gelu"}, "`hidden_act` must be `silu`, found `gelu`"),
        ({"quantization_config": {"quant_method": "fp8"}}, "`quantization_config` is set"),
        ({"use_sliding_window": True}, "`use_sliding_window` is set"),
        ({"hidden_size": None}, "`hidden_size` must be a positive whole number, found `None`"),
        ({"num_hidden_layers": "many"}, "`num_hidden_layers` must be a positive whole number"),
        ({"num_key_value_heads": 5}, "32 query heads are not a multiple of 5 KV heads"),
        ({"head_dim": 63}, "even `head_dim`, found 63"),
    ],
)
def test_what_cannot_be_computed_is_named(changes, message):
    with pytest.raises(ModelError, match=message):
        config_from_json(LLAMA | changes, {})


def test_an_architecture_is_also_known_by_its_model_type():
    assert (
        config_from_json(LLAMA | {"architectures": None, "model_type": "qwen3"}, {}).architecture == "qwen3"
    )


def test_a_folder_is_read_with_both_documents(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA))
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": 5}')
    wanted = config_from_json(LLAMA, {})
    assert read_folder_config(tmp_path) == replace(wanted, eos_token_ids=(*wanted.eos_token_ids, 5))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "config.json does not exist"),
        ("{", "is not JSON"),
        ("[]", "JSON object, found `list`"),
        (b"\xff", "not JSON"),
    ],
)
def test_a_broken_document_is_named_with_its_path(tmp_path, text, message):
    if text is not None:
        (tmp_path / "config.json").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ModelError, match=message):
        read_folder_config(tmp_path)
