"""Tensors of a Hugging Face folder: one `model.safetensors`, or shards listed in an index."""

from __future__ import annotations

from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor

from runtime.engine.model.errors import ModelError
from runtime.engine.model.json_file import read_json_object

SINGLE_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"


class SafetensorsSource:
    """Reads lazily: each file is mapped once and only the tensors that are asked for leave the disk."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files = {path: _open(path) for path in _shards(folder)}
        self._path_of = {
            name: path
            for path, file in self._files.items()
            for name in file.keys()  # noqa: SIM118 (no dict: it cannot be iterated over)
        }

    def read(self, name: str) -> Tensor:
        path = self._path_of.get(name)
        if path is None:
            raise ModelError(f"tensor `{name}` is missing from {self.location(name)}")
        return self._files[path].get_tensor(name)

    def location(self, name: str) -> str:
        path = self._path_of.get(name)
        if path is None:
            path = next(iter(self._files)) if len(self._files) == 1 else self._folder / INDEX_FILE
        return str(path)


def _shards(folder: Path) -> list[Path]:
    index_path = folder / INDEX_FILE
    if index_path.exists():
        names = sorted(set(read_json_object(index_path).get("weight_map", {}).values()))
        if any(Path(name).name != name for name in names):  # an index may not lead out of its folder
            raise ModelError(f"{index_path} names a file outside {folder}")
        return [folder / name for name in names]
    return [folder / SINGLE_FILE]


def _open(path: Path) -> safe_open:
    if not path.exists():
        raise ModelError(f"weights are missing: {path} does not exist")
    try:
        return safe_open(path, framework="pt")
    except SafetensorError as error:
        raise ModelError(f"{path} is truncated or damaged: {error}") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error}") from None
