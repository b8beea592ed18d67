"""A GGUF file as a checkpoint: its metadata as a `ModelConfig`, its tensors under Hugging Face's names."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from runtime.engine.model.config import ARCHITECTURES, ModelConfig, unknown_architecture
from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_file import GGUFFile
from runtime.engine.model.rope_scaling import DEFAULT_THETA, FrequencyFactors, LinearScaling, RopeScaling

_WHOLE_MODEL = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_IN_LAYER = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_ROPE_FACTORS = "rope_freqs.weight"


def read_gguf_config(file: GGUFFile) -> ModelConfig:
    """Translate the metadata; what it leaves out is seen from which tensors are there."""
    architecture = _required(file, "general.architecture")
    if architecture not in ARCHITECTURES.values():
        raise unknown_architecture(architecture)
    hidden_size = _required(file, f"{architecture}.embedding_length")
    num_heads = _required(file, f"{architecture}.attention.head_count")
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"tensor `token_embd.weight` is missing from {file.path}")
    return ModelConfig(
        architecture=architecture,
        vocab_size=embedding.shape[0],
        hidden_size=hidden_size,
        intermediate_size=_required(file, f"{architecture}.feed_forward_length"),
        num_layers=_required(file, f"{architecture}.block_count"),
        num_heads=num_heads,
        num_kv_heads=file.metadata.get(f"{architecture}.attention.head_count_kv", num_heads),
        head_dim=file.metadata.get(f"{architecture}.attention.key_length", hidden_size // num_heads),
        max_position=_required(file, f"{architecture}.context_length"),
        rms_norm_eps=_required(file, f"{architecture}.attention.layer_norm_rms_epsilon"),
        rope_theta=file.metadata.get(f"{architecture}.rope.freq_base", DEFAULT_THETA),
        rope_scaling=_rope_scaling(file, architecture),
        has_tied_embeddings="output.weight" not in file.tensors,
        has_qkv_bias="blk.0.attn_q.bias" in file.tensors,
        has_o_bias="blk.0.attn_output.bias" in file.tensors,
        has_mlp_bias="blk.0.ffn_gate.bias" in file.tensors,
        has_qk_norm="blk.0.attn_q_norm.weight" in file.tensors,
        eos_token_ids=_eos_token_ids(file),
    )


class GGUFSource:
    """A `TensorSource`; llama.cpp's order of query and key rows is undone."""

    def __init__(self, file: GGUFFile, config: ModelConfig) -> None:
        self._file = file
        # Only `llama` files are permuted: llama.cpp takes rotary pairs from neighbours, Qwen's from halves.
        self._is_permuted = config.architecture == "llama"
        self._head_dim = config.head_dim

    def read(self, name: str) -> Tensor:
        gguf_name = _gguf_name(name)
        if gguf_name not in self._file.tensors:
            raise ModelError(f"tensor `{gguf_name}` is missing from {self._file.path}")
        tensor = self._file.read(gguf_name)
        if self._is_permuted and (".q_proj." in name or ".k_proj." in name):
            return _halves_from_pairs(tensor, self._head_dim)
        return tensor

    def location(self, name: str) -> str:
        return str(self._file.path)


def _gguf_name(name: str) -> str:
    """`model.layers.3.mlp.up_proj.weight` is `blk.3.ffn_up.weight`."""
    if name in _WHOLE_MODEL:
        return _WHOLE_MODEL[name]
    layer, rest = name.removeprefix("model.layers.").split(".", 1)
    module, kind = rest.rsplit(".", 1)
    return f"blk.{layer}.{_IN_LAYER[module]}.{kind}"


def _halves_from_pairs(rows: Tensor, head_dim: int) -> Tensor:
    """Reorder each head's rows from rotary pairs (0, 1), (2, 3), ... to halves (0, D/2), (1, D/2 + 1), ...

    rows: [heads * D, ...], weight or bias
    """
    tail = rows.shape[1:]
    return rows.reshape(-1, head_dim // 2, 2, *tail).transpose(1, 2).reshape(-1, *tail)


def _required(file: GGUFFile, key: str) -> Any:
    if key not in file.metadata:
        raise ModelError(f"metadata `{key}` is missing from {file.path}")
    return file.metadata[key]


def _rope_scaling(file: GGUFFile, architecture: str) -> RopeScaling | None:
    if _ROPE_FACTORS in file.tensors:
        return FrequencyFactors(factors=tuple(file.read(_ROPE_FACTORS).tolist()))
    kind = file.metadata.get(f"{architecture}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return LinearScaling(factor=_required(file, f"{architecture}.rope.scaling.factor"))
    raise ModelError(
        f"rope scaling `{kind}` in {file.path} is unknown, the reference engine computes `linear`"
    )


def _eos_token_ids(file: GGUFFile) -> tuple[int, ...]:
    """Both ends: that of a text, and that of a chat turn where they differ."""
    found = (file.metadata.get(f"tokenizer.ggml.{kind}_token_id") for kind in ("eos", "eot"))
    return tuple(dict.fromkeys(token_id for token_id in found if token_id is not None))
