"""Facts of a model from its `config.json`, as Hugging Face folders have one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pdctl.models.facts import Attention, ModelFacts

LARGEST_BYTES = 1 << 20  # the largest known ones have some ten kilobytes

# Models with layers that see a window only and whose KV SGLang keeps in a pool apart, by `model_type`
# (sglang 0.5.23 srt/configs/model_config.py, is_hybrid_swa_model). Others with a `sliding_window` (Gemma 3,
# Mistral) have all of their KV in one pool, as if every layer saw everything.
_SLIDING_TYPES = frozenset({"gpt_oss", "llama4", "llama4_text", "gemma4", "gemma4_text", "step3p5", "laguna"})

# Kinds of layers that keep a state per request in place of keys and values.
_STATE_LAYERS = frozenset({"linear_attention", "mamba", "mamba2", "conv", "recurrent"})

# Keys that only models with such layers have.
_STATE_KEYS = ("full_attention_interval", "hybrid_override_pattern", "linear_attn_config", "mamba_d_ssm")

# Models whose KV SGLang moves as it moves MLA's, without `kv_lora_rank` in the file (is_mla_backend).
_MLA_TYPES = frozenset({"deepseek_v4"})

# Models whose KV SGLang moves with an index of keys beside it (is_minimax_sparse of the same file).
_SPARSE_ARCHITECTURES = frozenset({"MiniMaxM3SparseForCausalLM", "MiniMaxM3SparseForConditionalGeneration"})

_EXPERT_KEYS = ("n_routed_experts", "num_experts", "num_local_experts")

_LENGTH_KEYS = (
    "max_sequence_length",
    "seq_length",
    "max_seq_len",
    "model_max_length",
    "max_position_embeddings",
)


class ConfigError(Exception):
    """A `config.json` that is there and can't be used; the text says why."""


def read_config(model_path: str) -> Mapping[str, Any] | None:
    """The parsed `config.json` of a model folder on this machine.

    None where there is none: a name on a hub, or a folder that only the nodes have. Raises `ConfigError`.
    """
    path = Path(model_path) / "config.json"
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            content = file.read(LARGEST_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        raise ConfigError(f"can't be read: {error}") from error
    if len(content) > LARGEST_BYTES:
        raise ConfigError(f"is larger than {LARGEST_BYTES} bytes")
    try:
        parsed: object = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise ConfigError("is no JSON object")
    return cast(Mapping[str, Any], parsed)


def facts_of_config(config: Mapping[str, Any]) -> ModelFacts:
    """What the file says of the text part of the model. Raises `ConfigError` for a count that is none."""
    nested = config.get("text_config")
    text = cast(Mapping[str, Any], nested) if isinstance(nested, dict) else config
    heads = _count(text, "num_attention_heads")
    kv_heads = _count(text, "num_key_value_heads")
    experts = [count for key in _EXPERT_KEYS if (count := _count(text, key)) is not None]
    return ModelFacts(
        attention="sparse" if _is_sparse(config) else _attention(text, heads, kv_heads),
        num_layers=_count(text, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=heads if kv_heads is None else kv_heads,
        head_dim=_head_dim(text, heads),
        num_experts=max(experts) if experts else 0,
        context_length=_context_length(text),
        source="config.json",
    )


def _is_sparse(config: Mapping[str, Any]) -> bool:
    listed: object = config.get("architectures")
    return isinstance(listed, list) and not _SPARSE_ARCHITECTURES.isdisjoint(
        map(str, cast(list[object], listed))
    )


def _attention(text: Mapping[str, Any], heads: int | None, kv_heads: int | None) -> Attention | None:
    listed: object = text.get("layer_types") or text.get("layers_block_type")
    kinds = set(map(str, cast(list[object], listed))) if isinstance(listed, list) else set[str]()
    model_type = text.get("model_type")
    if kinds & _STATE_LAYERS or any(text.get(key) is not None for key in _STATE_KEYS):
        return "hybrid"
    if text.get("kv_lora_rank") is not None or model_type in _MLA_TYPES:
        return "mla"
    if model_type in _SLIDING_TYPES or text.get("is_hybrid_swa") is True:
        return "sliding"
    if heads is None:
        return None
    return "mha" if kv_heads in (None, heads) else "gqa"


def _head_dim(text: Mapping[str, Any], heads: int | None) -> int | None:
    stated, hidden_size = _count(text, "head_dim"), _count(text, "hidden_size")
    if stated is not None or not heads or hidden_size is None:
        return stated
    return hidden_size // heads


def _context_length(text: Mapping[str, Any]) -> int | None:
    """The first key that is there, times its scaling, as SGLang's `get_context_length` has it."""
    stated = next((count for key in _LENGTH_KEYS if (count := _count(text, key)) is not None), None)
    found: object = text.get("rope_scaling")
    if stated is None or not isinstance(found, dict):
        return stated
    scaling = cast(Mapping[str, object], found)
    is_included = "original_max_position_embeddings" in scaling or scaling.get("rope_type") == "llama3"
    factor = scaling.get("factor")
    return stated if is_included or not isinstance(factor, int | float) else int(stated * factor)


def _count(text: Mapping[str, Any], key: str) -> int | None:
    value: object = text.get(key)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigError(f"has `{key}: {value}`, which is no count")
    return value
