"""GGUF files: written here by the `gguf` library from a model of transformers, read back, and broken."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from runtime.engine.model.checkpoint import open_checkpoint
from runtime.engine.model.config import read_folder_config
from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_file import GGUFFile

_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
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


def _gguf_name(name: str) -> str:
    for ours, theirs in _NAMES.items():
        name = name.replace(ours, theirs)
    return name.replace("model.layers.", "blk.")


def _permuted(rows: np.ndarray, num_heads: int) -> np.ndarray:
    """llama.cpp's converter does this to the query and key rows of Llama models."""
    halves = rows.reshape(num_heads, 2, rows.shape[0] // num_heads // 2, *rows.shape[1:])
    return halves.swapaxes(1, 2).reshape(rows.shape)


@pytest.fixture
def write_gguf(tiny_model, tmp_path) -> Callable[..., Path]:
    def write(name: str, *, kind: Kind = Kind.F32, changes: Mapping[str, Any] | None = None) -> Path:
        model = tiny_model(name)
        config = read_folder_config(model.folder)
        path = tmp_path / f"{name}.gguf"
        writer = gguf.GGUFWriter(path, config.architecture)
        writer.add_block_count(config.num_layers)
        writer.add_context_length(config.max_position)
        writer.add_embedding_length(config.hidden_size)
        writer.add_feed_forward_length(config.intermediate_size)
        writer.add_head_count(config.num_heads)
        writer.add_head_count_kv(config.num_kv_heads)
        writer.add_key_length(config.head_dim)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(config.rope_theta)
        writer.add_eos_token_id(2)
        writer.add_array("tokenizer.ggml.tokens", [f"token {i} é" for i in range(50)])
        for key, value in (changes or {}).items():
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
        for tensor_name, tensor in model.oracle.state_dict().items():
            if tensor_name == "lm_head.weight" and config.has_tied_embeddings:
                continue
            values = tensor.numpy()
            if config.architecture == "llama" and (".q_proj" in tensor_name or ".k_proj" in tensor_name):
                values = _permuted(values, config.num_heads if ".q_" in tensor_name else config.num_kv_heads)
            is_matrix = values.ndim == 2 and values.shape[1] % 32 == 0
            tensor_kind = kind if is_matrix else Kind.F32
            writer.add_tensor(
                _gguf_name(tensor_name), gguf.quantize(values, tensor_kind), raw_dtype=tensor_kind
            )
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.mark.parametrize("name", ["llama", "llama-biased-linear-rope", "qwen2", "qwen3"])
def test_a_gguf_file_computes_what_its_folder_computes(
    tiny_model, write_gguf, make_runner, random_prompt, new_sequence, greedy, name
):
    changes = {}
    if name == "llama-biased-linear-rope":
        changes = {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}
    model, prompt = tiny_model(name), random_prompt(33, 1)
    runner = make_runner(write_gguf(name, changes=changes))
    assert greedy(runner, new_sequence(prompt, range(10)), 16) == model.greedy(prompt, 16)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1, Kind.Q6_K]
)
def test_quantised_tensors_equal_what_the_gguf_library_makes_of_them(tmp_path, kind):
    generator = np.random.default_rng(3)
    block_len, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    # Random bytes are valid blocks of every kind; 5,000 of them do not fit one pass of the reader.
    blocks = generator.integers(0, 256, size=(5_000, block_bytes), dtype=np.uint8)
    rows = blocks.reshape(50, -1)
    path = tmp_path / "one.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tensor("t", rows, raw_shape=rows.shape, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    wanted = gguf.dequantize(rows, kind)
    found = GGUFFile(path).read("t")
    assert found.shape == (50, 100 * block_len)
    assert np.array_equal(found.float().numpy(), wanted, equal_nan=True)


def test_metadata_equals_what_the_gguf_library_reads(write_gguf):
    path = write_gguf("llama")
    wanted = {name: field.contents() for name, field in gguf.GGUFReader(path).fields.items()}
    assert GGUFFile(path).metadata == {k: v for k, v in wanted.items() if not k.startswith("GGUF.")}


def test_the_config_equals_that_of_the_folder(tiny_model, write_gguf):
    wanted = read_folder_config(tiny_model("qwen3").folder)
    found = open_checkpoint(str(write_gguf("qwen3"))).config
    assert found.rms_norm_eps == pytest.approx(wanted.rms_norm_eps)
    assert {f: getattr(found, f) for f in ("head_dim", "num_kv_heads", "vocab_size", "has_qk_norm")} == {
        f: getattr(wanted, f) for f in ("head_dim", "num_kv_heads", "vocab_size", "has_qk_norm")
    }
    assert found.eos_token_ids == (2,)


def test_frequency_factors_of_llama_3_are_applied(tiny_model, tmp_path):
    """The writer's way: factors are what llama.cpp's converter computes from Llama 3's four numbers."""
    from runtime.engine.model.rope_scaling import FrequencyFactors

    config = read_folder_config(tiny_model("llama-tied-llama3-rope").folder)
    assert config.rope_scaling is not None
    plain = 1.0 / config.rope_theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)
    stretched = config.rope_scaling.stretch(plain)
    factors = FrequencyFactors(factors=tuple((plain / stretched).tolist()))
    assert torch.allclose(factors.stretch(plain), stretched)
    assert not torch.allclose(plain, stretched)


@pytest.mark.parametrize("part", [0.0, 0.00001, 0.01, 0.5, 0.999])
def test_a_truncated_file_says_so(write_gguf, part):
    path = write_gguf("llama")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    with pytest.raises(ModelError, match=r"llama\.gguf is (truncated|no usable GGUF file)"):
        GGUFFile(path)


def test_a_truncated_tensor_is_named(write_gguf):
    path = write_gguf("llama")
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(ModelError, match=r"truncated: tensor `[a-z.0-9_]+` ends at byte \d+"):
        GGUFFile(path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"PK\x03\x04" + bytes(100), "begins with"),
        (struct.pack("<4sIQQ", b"GGUF", 99, 0, 0), "version 99 is unknown"),
        (struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, 2**60), "truncated"),
        (struct.pack("<4sIQQQ1sI", b"GGUF", 3, 0, 1, 1, b"k", 77), "metadata of type 77 is unknown"),
        (struct.pack("<4sIQQQ1sIIQ", b"GGUF", 3, 0, 1, 1, b"k", 9, 4, 2**40), "truncated"),
        (
            struct.pack("<4sIQQQ1sIQIQ", b"GGUF", 3, 1, 0, 1, b"t", 1, 64, 250, 0),
            "tensor type 250 is unknown",
        ),
    ],
)
def test_what_is_no_gguf_is_refused_without_taking_memory(tmp_path, content, message):
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=message):
        GGUFFile(path)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ModelError, match=r"gone\.gguf does not exist"):
        GGUFFile(tmp_path / "gone.gguf")


def test_an_unknown_architecture_is_named(tmp_path):
    writer = gguf.GGUFWriter(tmp_path / "mamba.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="`mamba` is unknown"):
        open_checkpoint(str(tmp_path / "mamba.gguf"))


def test_a_missing_tensor_is_named_as_the_file_spells_it(write_gguf, make_runner):
    path = write_gguf("llama")
    path.write_bytes(path.read_bytes().replace(b"blk.1.ffn_up.weight", b"blk.1.ffn_xx.weight"))
    with pytest.raises(ModelError, match=r"tensor `blk\.1\.ffn_up\.weight` is missing"):
        make_runner(path)
