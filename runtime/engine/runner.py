"""The model as the engine loop calls it: one forward step over the paged pool, on any torch device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from runtime.engine.compute import Chunk
from runtime.engine.model.checkpoint import open_checkpoint
from runtime.engine.model.config import ModelConfig
from runtime.engine.model.errors import ModelError
from runtime.engine.model.padding import with_padded_heads
from runtime.engine.model.partition import HeadPart, head_part
from runtime.engine.model.transformer import Transformer
from runtime.engine.model.weights import load_weights
from runtime.engine.ranks.comm import Alone, Comm
from runtime.engine.ranks.meeting import rank_device
from runtime.engine.ranks.shape import RankShape
from runtime.engine.settings import EngineSettings
from runtime.kv.layout import KVLayout
from runtime.kv.pool import KVPool

__all__ = ["Chunk", "ModelRunner", "load_runner"]


class ModelRunner:
    """Weights and KV pool of one rank. Called by one thread at a time, on all ranks together."""

    def __init__(self, config: ModelConfig, pool: KVPool, transformer: Transformer) -> None:
        self.config = config  # the whole model's
        self.pool = pool
        self._transformer = transformer

    @torch.inference_mode()
    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Write the K/V of every chunk into its pages; logits of each one's last token.

        Prompt chunks and single decode tokens may be mixed. There is at least one, none is empty, no two
        belong to one sequence; those of one attention-DP rank are neighbours, in the order of the ranks.
        Gives [len(chunks), vocab] float32 on the pool's device, on the leader. The K/V is there when this
        returns: what moves it to other engines knows nothing of a device's queue.
        """
        logits = self._transformer.step(chunks)
        if self.pool.device.type == "cuda":
            torch.cuda.current_stream(self.pool.device).synchronize()
        return logits


def load_runner(
    settings: EngineSettings, shape: RankShape | None = None, comm: Comm | None = None
) -> ModelRunner:
    """Read one rank's part of the model that the settings name, and reserve its KV pool.

    Without a shape and its means of communication the rank is the only one. Raises `ModelError`.
    """
    shape = shape or RankShape()
    _set_num_threads(settings)
    dtype: torch.dtype = getattr(torch, settings.dtype)  # one of three names that argparse let through
    device = _open_device(rank_device(settings))
    checkpoint = open_checkpoint(settings.model_path)
    if settings.pad_kv_heads is not None:
        checkpoint = with_padded_heads(checkpoint, settings.pad_kv_heads)
    config = checkpoint.config
    pool = KVPool(kv_layout(config, settings, dtype, head_part(config, shape)), device=device, dtype=dtype)
    weights = load_weights(config, checkpoint.source, shape=shape, dtype=dtype, device=device)
    return ModelRunner(config, pool, Transformer(config, weights, pool, shape=shape, comm=comm or Alone()))


def kv_layout(config: ModelConfig, settings: EngineSettings, dtype: torch.dtype, heads: HeadPart) -> KVLayout:
    """Size one rank's pool: `max_total_tokens` rounded up to pages, or what `kv_pool_mb` holds."""
    one_page = KVLayout(
        num_layers=config.num_layers,
        num_pages=1,
        page_size=settings.page_size,
        num_kv_heads=len(heads.keys),
        head_dim=config.slot_dim,
        dtype_bytes=dtype.itemsize,
        planes_per_layer=2 if config.latent is None else 1,
    )
    if settings.max_total_tokens is not None:
        num_pages = one_page.num_pages_for(settings.max_total_tokens)
    else:
        num_pages = settings.kv_pool_mb * 2**20 // one_page.total_bytes
    if num_pages == 0:
        page_mb = one_page.total_bytes / 2**20
        raise ModelError(
            f"one KV page takes {page_mb:.1f} MiB, the pool of {settings.kv_pool_mb} MiB holds none"
        )
    return replace(one_page, num_pages=num_pages)


def _set_num_threads(settings: EngineSettings) -> None:
    """Left to itself, torch would give each rank of a node all of its cores."""
    if settings.num_threads is not None:
        torch.set_num_threads(settings.num_threads)
    elif settings.num_local_ranks > 1:
        torch.set_num_threads(max(1, torch.get_num_threads() // settings.num_local_ranks))


def _open_device(name: str) -> torch.device:
    """Find out now, not at the first request, that a device is absent."""
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:  # torch built without CUDA raises the latter
        raise ModelError(f"device `{name}` cannot be used: {str(error).splitlines()[0]}") from None
    return device
