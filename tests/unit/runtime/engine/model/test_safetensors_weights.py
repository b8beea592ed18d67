"""Weights of a Hugging Face folder: whole or in shards, and each way in which they can be broken."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from runtime.engine.model.checkpoint import open_checkpoint
from runtime.engine.model.errors import ModelError
from runtime.engine.model.weights import load_weights
from runtime.engine.ranks.shape import RankShape

NAME = "model.layers.1.self_attn.k_proj.weight"


def _load(folder: Path, dtype: torch.dtype = torch.float32):
    checkpoint = open_checkpoint(str(folder))
    shape, cpu = RankShape(), torch.device("cpu")
    return load_weights(checkpoint.config, checkpoint.source, shape=shape, dtype=dtype, device=cpu)


@pytest.fixture
def folder(tiny_model, tmp_path) -> Path:
    """A copy to break."""
    return Path(shutil.copytree(tiny_model("llama").folder, tmp_path / "model"))


def _change(folder: Path, name: str, tensor: torch.Tensor | None) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors[name]
    save_file(tensors if tensor is None else tensors | {name: tensor}, folder / "model.safetensors")


def test_projections_that_share_their_input_are_fused(folder):
    tensors = load_file(folder / "model.safetensors")
    layer = _load(folder).layers[1]
    attention, mlp = "model.layers.1.self_attn", "model.layers.1.mlp"
    assert torch.equal(
        layer.attention.qkv.weight, torch.cat([tensors[f"{attention}.{p}_proj.weight"] for p in "qkv"])
    )
    assert torch.equal(
        layer.mlp.gate_up.weight, torch.cat([tensors[f"{mlp}.{p}_proj.weight"] for p in ("gate", "up")])
    )


def test_weights_are_converted_to_the_wanted_dtype(folder):
    weights = _load(folder, torch.bfloat16)
    assert weights.embedding.dtype == weights.layers[0].attention.o.weight.dtype == torch.bfloat16


def test_tied_embeddings_are_held_once(tiny_model):
    weights = _load(tiny_model("llama-tied-llama3-rope").folder)
    assert weights.head.weight.data_ptr() == weights.embedding.data_ptr()


def test_shards_are_found_through_the_index(tiny_model, tmp_path):
    model = tiny_model("llama")
    model.oracle.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    whole, sharded = _load(model.folder), _load(tmp_path)
    for one, other in zip(whole.layers, sharded.layers, strict=True):
        assert torch.equal(one.attention.qkv.weight, other.attention.qkv.weight)
        assert torch.equal(one.mlp.down.weight, other.mlp.down.weight)


def test_a_missing_file_is_named(folder):
    (folder / "model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"weights are missing: .*model\.safetensors does not exist"):
        _load(folder)


@pytest.mark.parametrize("kept_bytes", [0, 5, 1000, -1])
def test_a_truncated_file_is_named(folder, kept_bytes):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:kept_bytes])
    with pytest.raises(ModelError, match=r"model\.safetensors is truncated or damaged"):
        _load(folder)


def test_a_missing_tensor_is_named_with_its_file(folder):
    _change(folder, NAME, None)
    with pytest.raises(ModelError, match=rf"tensor `{NAME}` is missing from .*model\.safetensors"):
        _load(folder)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder):
    _change(folder, NAME, torch.zeros(16, 40))
    with pytest.raises(
        ModelError, match=rf"`{NAME}` in .* has shape \[16, 40\], the config wants \[16, 48\]"
    ):
        _load(folder)


def test_a_missing_shard_is_named(tiny_model, tmp_path):
    tiny_model("llama").oracle.save_pretrained(tmp_path, max_shard_size="60KB")
    victim = sorted(tmp_path.glob("*.safetensors"))[1]
    victim.unlink()
    with pytest.raises(ModelError, match=f"{victim.name} does not exist"):
        _load(tmp_path)


def test_an_index_cannot_lead_out_of_its_folder(folder):
    index = {"weight_map": {NAME: "../elsewhere.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="names a file outside"):
        _load(folder)


def test_a_path_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ModelError, match="nowhere does not exist"):
        open_checkpoint(str(tmp_path / "nowhere"))


def test_an_unknown_builtin_is_an_error_of_the_model():
    with pytest.raises(ModelError, match="no-such-model"):
        open_checkpoint("builtin:no-such-model")
