"""A bug: one line for the user, the traceback in a file for whoever mends it."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime

import pdctl
from pdctl.state.paths import state_dir


def report(error: Exception, environ: Mapping[str, str]) -> None:
    """Save and tell; PDCTL_DEBUG shows the traceback instead."""
    trace = "".join(traceback.format_exception(error))
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    if environ.get("PDCTL_DEBUG"):
        print(trace, file=sys.stderr)
    print(f"internal error: {said}", file=sys.stderr)
    print(_saved(trace, environ), file=sys.stderr)


def _saved(trace: str, environ: Mapping[str, str]) -> str:
    now = datetime.now(UTC)
    path = state_dir(environ) / "crashes" / f"{now:%Y%m%dT%H%M%S.%f}.txt"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"pdctl {pdctl.__version__} {sys.argv}\n{trace}", encoding="utf-8")
    except OSError as error:
        return f"the traceback could not be saved ({error}); PDCTL_DEBUG=1 shows it"
    return f"this is a bug in pdctl; the traceback is in {path}, please report it"
