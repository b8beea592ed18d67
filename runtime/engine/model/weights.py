"""One rank's part of a model, as the forward pass wants it."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.engine.model.config import ModelConfig
from runtime.engine.model.experts import Experts, load_experts
from runtime.engine.model.grouped import GroupedAttention, load_grouped
from runtime.engine.model.latent import LatentAttention, load_latent
from runtime.engine.model.partition import head_part
from runtime.engine.model.weight_reader import Part, Projection, TensorSource, WeightReader
from runtime.engine.ranks.shape import RankShape


@dataclass(frozen=True, slots=True, kw_only=True)
class Dense:
    """The columns of an MLP that a rank has, I of them; `down` gives a part of a sum over all ranks."""

    gate_up: Projection  # [2 I, hidden]: gate, then up
    down: Projection  # [hidden, I]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    attention_norm: Tensor  # [hidden]
    attention: GroupedAttention | LatentAttention
    mlp_norm: Tensor  # [hidden]
    mlp: Dense | Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWeights:
    embedding: Tensor  # [vocab, hidden]
    layers: tuple[LayerWeights, ...]
    final_norm: Tensor  # [hidden]
    head: Projection  # [a rank's part of vocab, hidden]; of the embedding itself where the two are tied


def load_weights(
    config: ModelConfig,
    source: TensorSource,
    *,
    shape: RankShape,
    dtype: torch.dtype,
    device: torch.device,
) -> ModelWeights:
    """Read, check, cut, convert and fuse all tensors; in parallel, as dequantising is slow."""
    reader = WeightReader(source, dtype, device)
    whole_vocab = (config.vocab_size, config.hidden_size)
    with ThreadPoolExecutor(max_workers=min(8, os.cpu_count() or 1)) as workers:
        embedding = workers.submit(reader.tensor, "model.embed_tokens.weight", whole_vocab)
        layers = workers.map(
            lambda index: _load_layer(reader, config, shape, index), range(config.num_layers)
        )
        return ModelWeights(
            layers=tuple(layers),
            embedding=embedding.result(),
            final_norm=reader.tensor("model.norm.weight", (config.hidden_size,)),
            head=_load_head(reader, config, shape.columns(config.vocab_size), embedding.result()),
        )


def _load_layer(reader: WeightReader, config: ModelConfig, shape: RankShape, index: int) -> LayerWeights:
    prefix, hidden = f"model.layers.{index}", (config.hidden_size,)
    heads, load_attention = head_part(config, shape), load_grouped if config.latent is None else load_latent
    return LayerWeights(
        attention_norm=reader.tensor(f"{prefix}.input_layernorm.weight", hidden),
        attention=load_attention(
            reader, config, heads, f"{prefix}.self_attn", adds_bias=shape.attn_tp_rank == 0
        ),
        mlp_norm=reader.tensor(f"{prefix}.post_attention_layernorm.weight", hidden),
        mlp=(
            load_experts(reader, config, shape, f"{prefix}.mlp")
            if config.has_experts(index)
            else _load_dense(reader, config, shape, f"{prefix}.mlp")
        ),
    )


def _load_dense(reader: WeightReader, config: ModelConfig, shape: RankShape, prefix: str) -> Dense:
    total, has_bias = config.intermediate_size, config.has_mlp_bias
    gate, up, down = (
        Part(f"{prefix}.{name}_proj", total, shape.columns(total)) for name in ("gate", "up", "down")
    )
    return Dense(
        gate_up=reader.rows((gate, up), config.hidden_size, has_bias=has_bias),
        down=reader.columns(down, config.hidden_size, has_bias=has_bias and shape.is_leader),
    )


def _load_head(reader: WeightReader, config: ModelConfig, vocab: range, embedding: Tensor) -> Projection:
    if config.has_tied_embeddings:
        return Projection(weight=embedding[vocab.start : vocab.stop], bias=None)
    shape = (config.vocab_size, config.hidden_size)
    return Projection(weight=reader.tensor("lm_head.weight", shape, rows=vocab), bias=None)
