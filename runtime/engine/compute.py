"""What the engine loop needs of a model: its limits, its KV pool, one forward step, one draw per sequence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from runtime.engine.live import LiveRequest, Sampled
from runtime.kv.layout import KVLayout
from runtime.kv.reshard import KVKind

if TYPE_CHECKING:
    from torch import Tensor

    from runtime.kv.memory import Memory


class Chunk(NamedTuple):
    """Neighbouring tokens of one sequence to compute: the K/V of everything before them is in the pages."""

    token_ids: tuple[int, ...]
    start_pos: int
    pages: tuple[int, ...]
    attn_dp_rank: int = 0  # whose pool the pages are of


class Runner(Protocol):
    """The model with its pool. Called on the engine thread only."""

    def forward(self, chunks: Sequence[Chunk]) -> Tensor:
        """Write the chunks' K/V into their pages; logits of each one's last token, [len(chunks), vocab].

        Chunks of one attention-DP rank are neighbours, in the order of the ranks.
        """
        ...


class Sampler(Protocol):
    def sample(self, logits: Tensor, requests: Sequence[LiveRequest]) -> list[Sampled]:
        """Draw the next token of each request from its row of `logits`, [len(requests), vocab] float32."""
        ...


class PageSource(Protocol):
    """The page allocator: `alloc` gives all pages or none, next to the page `after` if it can."""

    @property
    def num_free(self) -> int: ...

    @property
    def num_pages(self) -> int: ...

    def alloc(self, num: int, *, after: int | None = None) -> tuple[int, ...] | None: ...

    def free(self, pages: Sequence[int]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """A loaded model as the scheduler sees it."""

    runner: Runner
    sampler: Sampler
    allocators: tuple[PageSource, ...]  # one per attention-DP rank
    layout: KVLayout  # of one rank's pool; all ranks have equal ones
    num_kv_heads: int  # the model's, over all ranks; 1 where slots are latent rows
    pool: Memory  # all bytes of this rank's pool, writable
    vocab_size: int
    context_len: int
    eos_token_ids: frozenset[int]

    @property
    def kind(self) -> KVKind:
        return KVKind.LATENT if self.layout.planes_per_layer == 1 else KVKind.HEADS

    @property
    def num_pool_tokens(self) -> int:
        """What one attention-DP rank has room for."""
        return self.layout.num_pages * self.layout.page_size
