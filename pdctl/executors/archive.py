"""The shim as one file: its package packed so that a bare Python runs it, named after its content."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import io
import zipfile
from dataclasses import dataclass
from pathlib import Path

from pdctl.diagnostics import DiagnosticError

_MAIN = "from shim.cli import main\n\nraise SystemExit(main())\n"
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same sources must give the same bytes on every machine


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimArchive:
    """What is shipped to nodes. Content decides the name, so different versions of pdctl can share a node."""

    name: str
    content: bytes


@functools.cache
def shim_archive() -> ShimArchive:
    """Pack the installed shim. Not compressed: a node's Python may lack zlib, and it is small."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo("__main__.py", _EPOCH), _MAIN)
        for source in sorted(_shim_sources().glob("*.py")):
            archive.writestr(zipfile.ZipInfo(f"shim/{source.name}", _EPOCH), source.read_bytes())
    content = packed.getvalue()
    return ShimArchive(name=f"shim-{hashlib.sha256(content).hexdigest()}.pyz", content=content)


def _shim_sources() -> Path:
    """Found without importing it: `pdctl` and `runtime` meet in files and processes only."""
    spec = importlib.util.find_spec("runtime")
    for location in (spec.submodule_search_locations or ()) if spec else ():
        sources = Path(location) / "shim"
        if sources.is_dir():
            return sources
    raise DiagnosticError.one(
        "PD501",
        "this installation of pdctl lacks the shim that it ships to nodes",
        help="install pdctl anew; the packages `pdctl` and `runtime` belong together",
    )
