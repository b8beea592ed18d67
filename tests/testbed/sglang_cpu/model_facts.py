"""Say what SGLang takes a model for, by its own reading of a `config.json`. Runs inside the testbed.

Standard input is a JSON object of `model_type` to architecture: transformers makes a config of each, with its
defaults. Standard output is a JSON object of `model_type` to that config and what SGLang makes of it.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> None:
    asked = json.load(sys.stdin)
    told = {model_type: of(model_type, architecture) for model_type, architecture in asked.items()}
    json.dump(told, answers, default=str)
    answers.close()


def of(model_type: str, architecture: str) -> dict:
    from sglang.srt.configs.model_config import AttentionArch, ModelConfig
    from transformers import AutoConfig

    config = AutoConfig.for_model(model_type).to_dict()
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


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # SGLang's own words go where errors go
    main()
