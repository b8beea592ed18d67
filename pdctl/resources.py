"""Files that ship with pdctl: schemas and topologies.

A wheel carries them inside the package; in a checkout they stand beside it, where people look for them.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def resource_path(*parts: str) -> Path:
    """The file or folder at `parts`, such as `("schemas", "topology.schema.json")`, wherever pdctl lies."""
    packaged = _PACKAGE.joinpath(*parts)
    return packaged if packaged.exists() else _PACKAGE.parent.joinpath(*parts)
