"""The shim as one file: its package packed so that a bare Python runs it, named after its content."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path

from pdctl.diagnostics import DiagnosticError

# A script rather than a zip file: Python reads a script once, but opens a zip file again for each import, and
# another operator's last `down` may remove the file in between.
#
# Compiling costs more than half of a short call, so the first one leaves its byte code beside the script, as
# Python does for modules and nobody does for scripts. What is damaged, cut off, of another Python or can't be
# written is done without. It is trusted as the script is: both lie in a folder of the user alone.
_SCRIPT = """\
import marshal, os, sys

if sys.version_info < (3, 8):
    sys.stdout.write('{{"error": "its Python is %d.%d, the shim needs 3.8 or later"}}' % sys.version_info[:2])
    sys.exit(2)
from _frozen_importlib import ModuleSpec  # importlib.machinery would cost 7 ms of each call
from _frozen_importlib_external import MAGIC_NUMBER
from _imp import source_hash

SOURCES = {sources!r}
BYTE_CODE = "%s.%s.pyc" % (__file__[:-3], sys.implementation.cache_tag)


def load():
    try:
        with open(BYTE_CODE, "rb") as file:
            seal, packed = file.read(12), file.read()
    except OSError:
        return None
    return marshal.loads(packed) if seal == MAGIC_NUMBER + source_hash(12, packed) else None


def save(codes):
    packed = marshal.dumps(codes)
    temporary = "%s.%d.pyc" % (BYTE_CODE, os.getpid())
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(MAGIC_NUMBER + source_hash(12, packed) + packed)
        os.replace(temporary, BYTE_CODE)
    except OSError:
        try:
            os.unlink(temporary)
        except OSError:
            pass


def compiled():
    codes = {{name: compile(source, "<%s>" % name, "exec") for name, source in SOURCES.items()}}
    save(codes)
    return codes


CODES = load() or compiled()


class Packed:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return ModuleSpec(name, Packed, is_package=name == "shim") if name in CODES else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        exec(CODES[module.__name__], module.__dict__)


sys.meta_path.insert(0, Packed)
from shim.cli import main

raise SystemExit(main())
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimArchive:
    """What is shipped to nodes. Content decides the name, so different versions of pdctl can share a node."""

    name: str
    content: bytes


@functools.cache
def shim_archive() -> ShimArchive:
    """Pack the installed shim; the same sources give the same bytes on every machine."""
    files = sorted(path for path in _shim_sources().glob("*.py") if path.name != "__main__.py")
    sources = {_module_name(path): path.read_text(encoding="utf-8") for path in files}
    content = _SCRIPT.format(sources=sources).encode()
    return ShimArchive(name=f"shim-{hashlib.sha256(content).hexdigest()}.py", content=content)


def _module_name(path: Path) -> str:
    return "shim" if path.stem == "__init__" else f"shim.{path.stem}"


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
