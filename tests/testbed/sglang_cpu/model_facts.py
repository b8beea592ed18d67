"""What SGLang takes a model for, by its own reading of a `config.json`. Runs inside the testbed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path


def of(model_type: str, architecture: str) -> dict:
    """A config that transformers makes with its defaults, and what SGLang makes of it."""
    import transformers
    from sglang.srt.configs.model_config import AttentionArch, ModelConfig
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES

    # Not by AutoConfig: with SGLang imported, that gives some of SGLang's own.
    config = getattr(transformers, CONFIG_MAPPING_NAMES[model_type])().to_dict()
    config |= {"architectures": [architecture], "model_type": model_type, "torch_dtype": "bfloat16"}
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config, default=str), encoding="utf-8")
        model = ModelConfig(folder)
    return {
        "config": config,
        "is_mla": model.attention_arch == AttentionArch.MLA,
        "has_window_pool": bool(model.is_hybrid_swa),
        "num_layers": model.num_hidden_layers,
        "num_heads": model.num_attention_heads,
        "num_kv_heads": model.get_total_num_kv_heads(),
    }
