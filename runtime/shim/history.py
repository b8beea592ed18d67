"""The verbs `note` and `history`: who did what to a deployment, a JSON line each, for all operators.

Lines are only ever appended; a file that has grown too long loses its older half.
"""

from __future__ import annotations

import os

from . import jsontext
from .record import RequestError, make_private_dirs, write_text

HISTORY = "history.jsonl"
MAX_BYTES = 256 << 10
MAX_LINE_BYTES = 16 << 10


def note(root: str, deployment: str, entry: object) -> dict:
    """Append one line with one write, so that a crash cuts off that line alone."""
    line = jsontext.dumps(entry).encode() + b"\n"
    if not isinstance(entry, dict) or len(line) > MAX_LINE_BYTES:
        raise RequestError("`entry` is not an object of at most %d bytes" % MAX_LINE_BYTES)
    make_private_dirs(os.path.join(root, deployment))
    path = os.path.join(root, deployment, HISTORY)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        size = os.fstat(descriptor).st_size
        is_cut_off = size and os.pread(descriptor, 1, size - 1) != b"\n"
        os.write(descriptor, b"\n" + line if is_cut_off else line)
    finally:
        os.close(descriptor)
    if size > MAX_BYTES:
        _halve(path)
    return {}


def history(root: str, deployment: str) -> list[dict]:
    """All entries, oldest first; lines that were cut off are left out."""
    entries = []
    for line in _lines(os.path.join(root, deployment, HISTORY)):
        try:
            entry = jsontext.loads(line)
        except ValueError:
            continue
        if isinstance(entry, dict):
            entries.append(entry)
    return entries


def _halve(path: str) -> None:
    lines = _lines(path)
    write_text(path, "\n".join(lines[len(lines) // 2 :]) + "\n")


def _lines(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(4 * MAX_BYTES).splitlines()
    except OSError:  # nothing was noted yet
        return []
