"""Find the model that a path means: a Hugging Face folder or a GGUF file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from runtime.engine.model.config import ModelConfig, read_folder_config
from runtime.engine.model.errors import ModelError
from runtime.engine.model.gguf_file import GGUFFile
from runtime.engine.model.gguf_weights import GGUFSource, read_gguf_config
from runtime.engine.model.safetensors_weights import SafetensorsSource
from runtime.engine.model.weight_reader import TensorSource
from runtime.models import ModelUnavailable, resolve


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    config: ModelConfig
    source: TensorSource


def open_checkpoint(model_path: str) -> Checkpoint:
    """Read the config and open the weights, without reading a tensor. Raises `ModelError`."""
    path = local_path(model_path)
    if path.is_dir():
        return Checkpoint(config=read_folder_config(path), source=SafetensorsSource(path))
    file = GGUFFile(path)
    config = read_gguf_config(file)
    return Checkpoint(config=config, source=GGUFSource(file, config))


def local_path(model_path: str) -> Path:
    """Give the folder or GGUF file that `model_path` (perhaps `builtin:NAME`) names on this machine."""
    try:
        path = resolve(model_path)
    except ModelUnavailable as error:
        raise ModelError(str(error)) from None
    if not path.exists():
        raise ModelError(f"model path {path} does not exist")
    return path
