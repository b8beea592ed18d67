"""Where the operator's machine keeps pdctl's state, from the environment that the caller passes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def state_dir(environ: Mapping[str, str]) -> Path:
    """`PDCTL_STATE_DIR`, else `pdctl` in the XDG state directory. Absolute; may not exist yet."""
    if chosen := environ.get("PDCTL_STATE_DIR"):
        return Path(chosen).expanduser().absolute()
    xdg = environ.get("XDG_STATE_HOME", "")
    # The XDG specification says that a relative path there is to be ignored.
    base = Path(xdg) if xdg.startswith("/") else Path("~/.local/state").expanduser()
    return base / "pdctl"


def deployments_dir(state: Path) -> Path:
    """The records of deployments, one folder each."""
    return state / "deployments"


def run_root(state: Path) -> Path:
    """Run directories of processes on this machine, for the local executor."""
    return state / "run"
