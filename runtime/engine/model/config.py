"""What the engine must know of a model's architecture, and how a Hugging Face `config.json` says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.engine.model.deepseek import ExpertShape, LatentShape, is_deepseek, read_experts, read_latent
from runtime.engine.model.errors import ModelError
from runtime.engine.model.json_file import read_count, read_json_object
from runtime.engine.model.rope_scaling import RopeScaling, read_rope

ARCHITECTURES = {
    "LlamaForCausalLM": "llama",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
    "DeepseekV2ForCausalLM": "deepseek_v2",
    "DeepseekV3ForCausalLM": "deepseek_v3",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder-only transformer of the Llama kind: RMSNorm, rotary positions, SwiGLU.

    Attention is grouped, or latent as DeepSeek's; layers are dense, or have experts.
    """

    architecture: str  # a value of ARCHITECTURES
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int  # of a query
    max_position: int  # longest context in tokens
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None
    has_tied_embeddings: bool
    has_qkv_bias: bool
    has_o_bias: bool
    has_mlp_bias: bool
    has_qk_norm: bool
    eos_token_ids: tuple[int, ...]
    latent: LatentShape | None = None  # None: keys and values per head
    experts: ExpertShape | None = None  # None: every layer is dense

    @property
    def rotary_dim(self) -> int:
        return self.head_dim if self.latent is None else self.latent.rotary_dim

    @property
    def num_slot_heads(self) -> int:
        """KV heads that a slot of the pool has room for, over all ranks."""
        return self.num_kv_heads if self.latent is None else 1

    @property
    def slot_dim(self) -> int:
        """Elements of one head in a slot, in each of its planes."""
        return self.head_dim if self.latent is None else self.latent.rank + self.latent.rotary_dim

    def has_experts(self, layer: int) -> bool:
        return self.experts is not None and layer >= self.experts.first_layer

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{self.num_heads} query heads are not a multiple of {self.num_kv_heads} KV heads"
            )
        if self.rotary_dim % 2:
            raise ModelError(f"rotary positions need an even `head_dim`, found {self.rotary_dim}")


def read_folder_config(folder: Path) -> ModelConfig:
    """Read `config.json`, and the end-of-sequence ids that `generation_config.json` adds to it."""
    config = read_json_object(folder / "config.json")
    generation_path = folder / "generation_config.json"
    generation = read_json_object(generation_path) if generation_path.exists() else {}
    try:
        return config_from_json(config, generation)
    except ModelError as error:
        raise ModelError(f"{folder / 'config.json'}: {error}") from None


def config_from_json(config: Mapping[str, Any], generation: Mapping[str, Any]) -> ModelConfig:
    """Translate the two documents of a Hugging Face folder; what is absent takes transformers' default."""
    architecture = _architecture(config)
    _refuse_what_is_not_computed(config)
    hidden_size = read_count(config, "hidden_size")
    num_heads = read_count(config, "num_attention_heads")
    has_bias = bool(config.get("attention_bias", False))
    rope_theta, rope_scaling = read_rope(config)
    latent = read_latent(config) if is_deepseek(architecture) else None
    return ModelConfig(
        architecture=architecture,
        vocab_size=read_count(config, "vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=read_count(config, "intermediate_size"),
        num_layers=read_count(config, "num_hidden_layers"),
        num_heads=num_heads,
        num_kv_heads=read_count(config, "num_key_value_heads", default=num_heads),
        head_dim=_head_dim(config, architecture, latent, hidden_size // num_heads),
        max_position=read_count(config, "max_position_embeddings", default=2048),
        rms_norm_eps=float(config.get("rms_norm_eps", 1e-6)),
        rope_theta=rope_theta,
        rope_scaling=rope_scaling,
        has_tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        has_qkv_bias=architecture == "qwen2" or has_bias,
        has_o_bias=architecture != "qwen2" and has_bias,
        has_mlp_bias=architecture == "llama" and bool(config.get("mlp_bias", False)),
        has_qk_norm=architecture == "qwen3",
        latent=latent,
        experts=read_experts(config, architecture) if is_deepseek(architecture) else None,
        eos_token_ids=_eos_token_ids(config, generation),
    )


def _head_dim(
    config: Mapping[str, Any], architecture: str, latent: LatentShape | None, even_share: int
) -> int:
    if latent is not None:
        return latent.query_dim
    return read_count(config, "head_dim", default=128 if architecture == "qwen3" else even_share)


def unknown_architecture(found: str) -> ModelError:
    known = ", ".join(f"`{name}`" for name in ARCHITECTURES)
    return ModelError(f"architecture `{found}` is unknown, the reference engine computes {known}")


def _architecture(config: Mapping[str, Any]) -> str:
    stated = config.get("architectures") or []
    if not stated and config.get("model_type") in ARCHITECTURES.values():
        return str(config["model_type"])
    found = str(stated[0]) if stated else str(config.get("model_type", "none stated"))
    if found not in ARCHITECTURES:
        raise unknown_architecture(found)
    return ARCHITECTURES[found]


def _refuse_what_is_not_computed(config: Mapping[str, Any]) -> None:
    """Stop where going on would answer wrong text without a word."""
    activation = config.get("hidden_act", "silu")
    if activation != "silu":
        raise ModelError(f"`hidden_act` must be `silu`, found `{activation}`")
    if config.get("quantization_config"):
        raise ModelError("`quantization_config` is set, the reference engine reads unquantised safetensors")
    if config.get("use_sliding_window"):
        raise ModelError("`use_sliding_window` is set, the reference engine attends to the whole context")


def _eos_token_ids(config: Mapping[str, Any], generation: Mapping[str, Any]) -> tuple[int, ...]:
    """Join both documents' ids: chat models often name their end-of-turn token in the second alone."""
    ids: list[int] = []
    for document in (config, generation):
        value = document.get("eos_token_id")
        ids += value if isinstance(value, list) else [] if value is None else [value]
    return tuple(dict.fromkeys(ids))
