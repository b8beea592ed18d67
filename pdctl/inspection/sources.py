"""Where the source of a program comes from: a wheel, or the environment of an interpreter."""

from __future__ import annotations

import subprocess
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from pdctl.fields import FieldError, parse_fields
from pdctl.inspection.modules import SourceTree
from pdctl.inspection.programs import PROGRAMS

_Source = TypeVar("_Source", bound=SourceTree)

_LOCATE_DEADLINE_S = 30.0
# Runs in the other interpreter: it locates files, and imports neither the package nor what it needs.
_LOCATE = """\
import importlib.metadata, importlib.util, json, os, sys
name = sys.argv[1]
spec = importlib.util.find_spec(name)
try:
    version = importlib.metadata.version(name)
except importlib.metadata.PackageNotFoundError:
    version = None
folder = next(iter(spec.submodule_search_locations or ()), None) if spec else None
print(json.dumps({"folder": folder and os.path.dirname(folder), "version": version}))
"""


class SourceError(Exception):
    """There is no source to read: no such file, no such interpreter, not installed there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """A folder of packages: site-packages, or the root of a checkout."""

    path: Path

    @property
    def label(self) -> str:
        return f"`{self.path}`"

    def read(self, path: str) -> bytes | None:
        file = self.path / path
        return file.read_bytes() if file.is_file() else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """A wheel on this machine."""

    path: Path
    archive: zipfile.ZipFile

    @property
    def label(self) -> str:
        return f"`{self.path.name}`"

    def read(self, path: str) -> bytes | None:
        try:
            return self.archive.read(path)
        except KeyError:
            return None

    def close(self) -> None:
        self.archive.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Found(Generic[_Source]):
    """A program, its version, and where its source is."""

    program: str
    version: str
    source: _Source


def open_wheel(path: Path) -> Found[Wheel]:
    """A wheel says what it holds in its name: `sglang-0.5.23-….whl`. The caller closes it."""
    project, version = (*path.name.removesuffix(".whl").split("-"), "")[:2]
    if path.suffix != ".whl" or project not in PROGRAMS or not version:
        raise SourceError(f"`{path.name}` is no wheel of {' or '.join(f'`{name}`' for name in PROGRAMS)}")
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise SourceError(f"the wheel `{path}` can't be read: {error}") from error
    return Found(program=project, version=version, source=Wheel(path=path, archive=archive))


def locate(program: str, python: str) -> Found[Folder]:
    """The program that the interpreter `python` would import."""
    try:
        done = subprocess.run(
            [python, "-c", _LOCATE, program],
            capture_output=True,
            check=False,
            timeout=_LOCATE_DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"`{python}` doesn't run: {error}") from error
    try:
        answer = parse_fields(f"the answer of `{python}`", done.stdout)
    except FieldError as error:
        last = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SourceError(f"`{python}` ended with {done.returncode}: {last}") from error
    folder, version = answer.optional_text("folder"), answer.optional_text("version")
    if folder is None or version is None:
        raise SourceError(f"`{program}` isn't installed for `{python}`")
    return Found(program=program, version=version, source=Folder(path=Path(folder)))
