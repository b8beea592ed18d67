"""A model with further heads of zeros, so that more ranks can share its heads evenly.

Such a head weighs nothing: its values are zeros, and the columns behind attention that read them are zeros
too. The model computes what it did before; its KV cache is laid out like that of a model with more heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor
from torch.nn import functional as F

from runtime.engine.model.checkpoint import Checkpoint
from runtime.engine.model.errors import ModelError
from runtime.engine.model.weight_reader import TensorSource


def with_padded_heads(checkpoint: Checkpoint, num_kv_heads: int) -> Checkpoint:
    """The checkpoint with that many KV heads, each with as many query heads as before. Raises ModelError."""
    config = checkpoint.config
    num_added = num_kv_heads - config.num_kv_heads
    if config.latent is not None:
        raise ModelError("--pad-kv-heads is for a cache of heads, this model's is latent")
    if num_added < 0:
        raise ModelError(f"--pad-kv-heads is {num_kv_heads}, the model has {config.num_kv_heads} KV heads")
    num_added_queries = num_added * (config.num_heads // config.num_kv_heads)
    added = {
        "q_proj": num_added_queries,
        "k_proj": num_added,
        "v_proj": num_added,
        "o_proj": num_added_queries,
    }
    return Checkpoint(
        config=replace(config, num_heads=config.num_heads + num_added_queries, num_kv_heads=num_kv_heads),
        source=PaddedSource(
            checkpoint.source, {name: heads * config.head_dim for name, heads in added.items()}
        ),
    )


class PaddedSource:
    """A `TensorSource` that ends its attention projections with zeros."""

    def __init__(self, source: TensorSource, num_added: Mapping[str, int]) -> None:
        self._source = source
        self._num_added = num_added  # rows by projection, columns of `o_proj`

    def read(self, name: str) -> Tensor:
        tensor = self._source.read(name)
        module, kind = name.split(".")[-2:]
        num_added = self._num_added.get(module, 0)
        if module == "o_proj":
            return tensor if kind == "bias" else F.pad(tensor, (0, num_added))
        return F.pad(tensor, (0, 0) * (tensor.dim() - 1) + (0, num_added)) if num_added else tensor

    def location(self, name: str) -> str:
        return self._source.location(name)
