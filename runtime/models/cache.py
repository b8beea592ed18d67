"""The user's cache of built-in models: where files lie and whether they are whole."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from runtime.models.catalog import CATALOG, BuiltinModel, find_model
from runtime.models.errors import ModelUnavailable

PREFIX = "builtin:"


def resolve(
    model_path: str,
    *,
    catalog: Sequence[BuiltinModel] = CATALOG,
    directory: Path | None = None,
) -> Path:
    """The file that `builtin:NAME` stands for, by its size only; any other path unchanged.

    Never fetches. `ModelUnavailable` says how to get the file, also on a machine without a network.
    """
    if not is_builtin(model_path):
        return Path(model_path)
    model = find_model(model_path.removeprefix(PREFIX), catalog)
    path = cached_path(model, directory or cache_directory())
    found_bytes = size_of(path)
    if found_bytes is None:
        raise ModelUnavailable(
            f"the built-in model `{model.name}` is not in the cache", hint=ways_to_get(model, path)
        )
    if found_bytes != model.size_bytes:
        raise ModelUnavailable(
            f"the built-in model `{model.name}` is damaged: `{path}` has {found_bytes} bytes, "
            f"not {model.size_bytes}",
            hint=ways_to_get(model, path),
        )
    return path


def is_builtin(model_path: str) -> bool:
    return model_path.startswith(PREFIX)


def cache_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """`${PDCTL_CACHE_DIR:-${XDG_CACHE_HOME:-~/.cache}/pdctl}/models`; an empty variable counts as unset."""
    own = environ.get("PDCTL_CACHE_DIR")
    if own:
        return Path(own).expanduser().absolute() / "models"
    shared = environ.get("XDG_CACHE_HOME")
    base = Path(shared) if shared else Path("~/.cache").expanduser()
    return base.absolute() / "pdctl" / "models"


def cached_path(model: BuiltinModel, directory: Path) -> Path:
    """Where the model's file lies once it is whole; nothing else is ever put there."""
    return directory / model.file_name


def is_intact(model: BuiltinModel, path: Path) -> bool:
    """Whether the file is the model, byte for byte. Reads all of it, if the size is right."""
    return matches(path, size_bytes=model.size_bytes, sha256=model.sha256)


def matches(path: Path, *, size_bytes: int, sha256: str) -> bool:
    return size_of(path) == size_bytes and sha256_of(path) == sha256


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def ways_to_get(model: BuiltinModel, path: Path) -> str:
    """How the file gets to `path`, with a network or without one."""
    return f"`pdctl models pull {model.name}`; without a network, {by_hand(model, path)}"


def by_hand(model: BuiltinModel, path: Path) -> str:
    return f"copy `{model.file_name}` (sha256 {model.sha256}) to `{path}`"
