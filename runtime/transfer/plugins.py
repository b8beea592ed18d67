"""Finds a transfer backend by its name: `open_backend` in the module `runtime.transfer.NAME`."""

from __future__ import annotations

import importlib
import pkgutil
from typing import cast

import runtime.transfer
from runtime.transfer.base import OpenBackend, TransferError

_NOT_BACKENDS = frozenset({"base", "one_sided", "plugins", "wire"})


def backend_names() -> tuple[str, ...]:
    """Every backend of this installation; nothing is imported, so a missing library does not matter."""
    found = {module.name for module in pkgutil.iter_modules(runtime.transfer.__path__)}
    return tuple(sorted(found - _NOT_BACKENDS))


def load_backend(name: str) -> OpenBackend:
    """The backend's `open_backend`. Raises TransferError for a name that nobody has."""
    if name not in backend_names():
        raise TransferError(f"unknown transfer backend `{name}`, known: {', '.join(backend_names())}")
    return cast("OpenBackend", importlib.import_module(f"runtime.transfer.{name}").open_backend)
