"""Build what runs real SGLang without an accelerator, and print the paths: `python3 install.py`.

It lies outside the tree, in `$PDCTL_TESTBED_DIR` or `~/.cache/pdctl/testbed`:

    sglang-0.5.23/         a virtual environment that parses, resolves and serves (1.9 GB, a minute)
    sources/<version>/     the unpacked wheels of other versions, which the same one parses and resolves with

Each is made once, by one process at a time, and anew when what it is made of changed. SGLang on CPUs needs
the Debian package libnuma1, and Mooncake libibverbs1 and libcurl4.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
VERSION = "0.5.23"
OTHER_VERSIONS = ("0.5.9", "0.5.12.post1", "0.5.17", "0.5.20")
TORCH = "torch==2.13.0"


@dataclass(frozen=True)
class Testbed:
    """Where things lie."""

    python: Path  # the interpreter that serves `VERSION`
    sources: dict[str, Path]  # version -> the folder to put on PYTHONPATH


def folder() -> Path:
    default = Path.home() / ".cache" / "pdctl" / "testbed"
    return Path(os.environ.get("PDCTL_TESTBED_DIR") or default)


def install() -> Testbed:
    environment = folder() / f"sglang-{VERSION}"
    pins = (HERE / "requirements.txt").read_bytes() + TORCH.encode()
    _once(environment, hashlib.sha256(pins).hexdigest(), _make_environment)
    with _alone(environment):
        _add_stand_ins(environment)
    sources = {version: folder() / "sources" / version for version in OTHER_VERSIONS}
    for version, place in sources.items():
        _once(place, version, lambda target, version=version: _unpack(environment, version, target))
    return Testbed(python=environment / "bin" / "python", sources=sources)


def _once(target: Path, made_of: str, make: Callable[[Path], None]) -> None:
    """Make a folder unless it stands whole; its marker is written last, so a half one never counts."""
    with _alone(target):
        marker = target / ".made-of"
        if marker.is_file() and marker.read_text() == made_of:
            return
        shutil.rmtree(target, ignore_errors=True)
        make(target)
        marker.write_text(made_of)


@contextlib.contextmanager
def _alone(target: Path) -> Iterator[None]:
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.with_name(f".{target.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _make_environment(target: Path) -> None:
    venv.create(target, with_pip=True)
    _pip(target, "install", "--no-compile", TORCH)
    # The pins are complete. SGLang's own requirements would bring 3 GB of CUDA kernels.
    _pip(target, "install", "--no-compile", "--no-deps", "--requirement", str(HERE / "requirements.txt"))


def _add_stand_ins(environment: Path) -> None:
    """Looked at each time: they change more often than the pins."""
    site = next((environment / "lib").glob("python3*/site-packages"))
    _write(site / "sglang_on_cpu.py", (HERE / "sglang_on_cpu.py").read_text())
    # A .pth file, because SGLang's children are started afresh and must find the stand-ins too.
    _write(site / "sglang_on_cpu.pth", "import sglang_on_cpu\n")
    # transformers asks for the version of torchvision; the stand-in is a module without one.
    metadata = site / "torchvision-0.28.0.dist-info"
    metadata.mkdir(exist_ok=True)
    _write(metadata / "METADATA", "Metadata-Version: 2.1\nName: torchvision\nVersion: 0.28.0\n")


def _write(path: Path, text: str) -> None:
    """At once and only if it is new: servers of another test run may be starting from it."""
    if path.is_file() and path.read_text() == text:
        return
    new = path.with_name(f".{path.name}.new")
    new.write_text(text)
    new.replace(path)


def _unpack(environment: Path, version: str, target: Path) -> None:
    target.mkdir(parents=True)
    _pip(environment, "download", "--no-deps", "--dest", str(target), f"sglang=={version}")
    (wheel,) = target.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    wheel.unlink()


def _pip(environment: Path, *words: str) -> None:
    """pip's own output goes to standard error: standard output is for the paths."""
    command = [environment / "bin" / "python", "-m", "pip", "--quiet", *words]
    subprocess.run(command, check=True, stdout=sys.stderr)


if __name__ == "__main__":
    testbed = install()
    paths = {version: str(place) for version, place in testbed.sources.items()}
    print(json.dumps({"python": str(testbed.python), "sources": paths}, indent=2))
