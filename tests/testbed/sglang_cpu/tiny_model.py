"""A two-layer Llama with random weights and a byte tokenizer, as a Hugging Face folder: 1 MB, loads at once.

Weights are large enough that attention is sharp: greedy text then depends on the whole prompt and does not
fall into a loop at once, which makes it an oracle for a KV cache that went astray. All comes from one seed.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

NUM_LAYERS = 2
NUM_HEADS = 4
NUM_KV_HEADS = 2  # two, so that a side may be split over two ranks
HEAD_DIM = 32
HIDDEN = NUM_HEADS * HEAD_DIM
INTERMEDIATE = 256
VOCABULARY = 512
SEED = 20240229

CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_act": "silu",
    "hidden_size": HIDDEN,
    "intermediate_size": INTERMEDIATE,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": NUM_HEADS,
    "num_key_value_heads": NUM_KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "tie_word_embeddings": False,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "torch_dtype": "float32",
}


def write_tiny_model(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG, indent=2))
    save_file(_weights(), folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer().save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "bos_token": "<s>",
                "eos_token": "</s>",
                "model_max_length": CONFIG["max_position_embeddings"],
                "chat_template": "{% for message in messages %}{{ message['content'] }}{% endfor %}",
            }
        )
    )
    return folder


def _weights() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(SEED)

    def random(rows: int, columns: int, gain: float = 1.0) -> torch.Tensor:
        return torch.randn(rows, columns, generator=generator) * gain / columns**0.5

    kv = NUM_KV_HEADS * HEAD_DIM
    weights = {
        "model.embed_tokens.weight": torch.randn(VOCABULARY, HIDDEN, generator=generator),
        "model.norm.weight": torch.ones(HIDDEN),
        "lm_head.weight": random(VOCABULARY, HIDDEN, gain=4.0),
    }
    for layer in range(NUM_LAYERS):
        name = f"model.layers.{layer}"
        weights |= {
            f"{name}.input_layernorm.weight": torch.ones(HIDDEN),
            f"{name}.post_attention_layernorm.weight": torch.ones(HIDDEN),
            f"{name}.self_attn.q_proj.weight": random(HIDDEN, HIDDEN, gain=2.0),
            f"{name}.self_attn.k_proj.weight": random(kv, HIDDEN, gain=2.0),
            f"{name}.self_attn.v_proj.weight": random(kv, HIDDEN, gain=2.0),
            f"{name}.self_attn.o_proj.weight": random(HIDDEN, HIDDEN, gain=2.0),
            f"{name}.mlp.gate_proj.weight": random(INTERMEDIATE, HIDDEN, gain=2.0),
            f"{name}.mlp.up_proj.weight": random(INTERMEDIATE, HIDDEN, gain=2.0),
            f"{name}.mlp.down_proj.weight": random(HIDDEN, INTERMEDIATE, gain=2.0),
        }
    return weights


def _tokenizer() -> Tokenizer:
    """One token a byte; the vocabulary's rest is never the text of a prompt."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: index for index, character in enumerate(alphabet)}
    vocabulary |= {f"<{index}>": index for index in range(len(alphabet), VOCABULARY)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>"])
    return tokenizer


if __name__ == "__main__":
    import sys

    print(write_tiny_model(Path(sys.argv[1])))
