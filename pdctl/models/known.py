"""The models that people serve most, by name. `known.json` has a line for each, with where it was read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from pdctl.models.facts import ModelFacts

# What a name may end with and still be the same model: quantizations, fine-tunings, dates. A name with
# another suffix (`-REAP`, `-5layer`) is another model, which may have fewer layers or experts.
_SUFFIX = re.compile(
    r"[-_.]("
    r"instruct|chat|base|it|thinking|preview|terminus|exp|speciale|zero|v0\.\d|hf|\d{4}"
    r"|bf16|fp8|fp4|fp8[-_]dynamic|nvfp4|mxfp4|w4a8|w8a8|w4afp8|int4|int8|awq|gptq|block|channel|modelopt"
    r")$"
)


def known_facts(name: str) -> ModelFacts | None:
    """Facts of `deepseek-ai/DeepSeek-R1-0528` or `/models/Qwen3-32B-FP8`; None: not known."""
    entry = _table().get(_plain(name))
    if entry is None:
        return None
    return ModelFacts(
        attention=entry["attention"],
        num_layers=entry.get("layers"),
        num_heads=entry.get("heads"),
        num_kv_heads=entry.get("kv_heads"),
        head_dim=entry.get("head_dim"),
        num_experts=entry.get("experts"),
        context_length=entry.get("context_length"),
        source="table",
    )


def _plain(name: str) -> str:
    plain = name.rstrip("/").rpartition("/")[2].lower()
    table = _table()
    while plain not in table and (shorter := _SUFFIX.sub("", plain)) != plain:
        plain = shorter
    return plain


@cache
def _table() -> Mapping[str, Mapping[str, Any]]:
    text = files("pdctl").joinpath("models", "known.json").read_text(encoding="utf-8")
    return {name: entry for entry in json.loads(text) for name in entry["names"]}
