"""The facts of a model that decide which deployments of it can work."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Attention = Literal["mha", "gqa", "mla", "hybrid", "sliding", "sparse"]
FactsSource = Literal["stated", "config.json", "table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFacts:
    """None: not known, and a rule that needs it stays silent.

    `attention` is one of

    - `mha`, `gqa`: each token has keys and values per head, of all heads or of groups of them;
    - `mla`: one compressed vector per token, the same on every rank;
    - `hybrid`: some layers keep a state per request (Mamba, linear attention) in place of keys and values;
    - `sliding`: some layers see only a window of tokens;
    - `sparse`: some layers choose tokens by an index, the same on every rank, beside heads that are not.
    """

    attention: Attention | None = None
    num_layers: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    head_dim: int | None = None
    num_experts: int | None = None  # routed ones, of a layer that has experts; 0: the model is dense
    context_length: int | None = None  # tokens
    source: FactsSource | None = None  # where the attention kind comes from

    @property
    def is_mla(self) -> bool | None:
        return None if self.attention is None else self.attention == "mla"
