"""Files on the operator's machine that survive a crash whole and never surprise with their size."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from pdctl.diagnostics import DiagnosticError

MAX_BYTES = 64 << 20


def replace_file(path: Path, content: bytes) -> None:
    """Write for the user alone, all or nothing: a crash leaves the old content or the new one."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        temporary = Path(name)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise cannot("write", path, error) from error


def read_file(path: Path) -> bytes | None:
    """The content, None when there is no such file."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise cannot("read", path, error) from error
    if len(content) > MAX_BYTES:
        raise DiagnosticError.one("PD506", f"`{path}` is longer than {MAX_BYTES} bytes")
    return content


def cannot(verb: str, path: Path, error: OSError) -> DiagnosticError:
    return DiagnosticError.one(
        "PD506",
        f"cannot {verb} `{path}`: {error.strerror or error}",
        notes=("it is part of this operator's own record; what runs on the nodes is not affected",),
        help="make the file readable and writable for you, free some space, or set `PDCTL_STATE_DIR`",
    )
