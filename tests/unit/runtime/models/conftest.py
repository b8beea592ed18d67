"""A model of a few bytes in a wheel of its own, so that nothing here needs a package index."""

import hashlib
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from runtime.models.catalog import BuiltinModel, Wheel

CONTENT = b"GGUF" + bytes(range(256)) * 8


@pytest.fixture
def content() -> bytes:
    return CONTENT


@pytest.fixture
def model(tmp_path: Path) -> BuiltinModel:
    """A catalog entry whose wheel lies at `tmp_path`/tiny_model-1.0-py3-none-any.whl."""
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/Tiny.Q4_1.gguf", CONTENT)
    wheel = Wheel(
        project="tiny-model",
        version="1.0",
        file_name=path.name,
        size_bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    return BuiltinModel(
        name="tiny",
        licence="Apache-2.0",
        origin="https://example.org/tiny",
        wheel=wheel,
        member="tiny_model/Tiny.Q4_1.gguf",
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """An empty cache folder."""
    path = tmp_path / "cache" / "models"
    path.mkdir(parents=True)
    return path


@pytest.fixture
def leave_wheel(tmp_path: Path, model: BuiltinModel, directory: Path) -> Callable[[], Path]:
    """Put the complete wheel where a fetch that died before it unpacked would have left it."""

    def leave() -> Path:
        folder = directory / f".{model.name}.fetch" / "wheel"
        folder.mkdir(parents=True)
        return (tmp_path / model.wheel.file_name).rename(folder / model.wheel.file_name)

    return leave


@pytest.fixture
def huge(model: BuiltinModel) -> BuiltinModel:
    """The same model, said to be of a size that no disk has room for."""
    return replace(model, size_bytes=1 << 60)
