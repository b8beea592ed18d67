"""A model's files as one fingerprint of names and sizes: tells a cut-off copy, and is quick for any size."""

from __future__ import annotations

import os
import zlib  # hashlib would load all of OpenSSL first

MAX_FILES = 100_000


def model(path: object) -> dict:
    """`{"problem", "num_files", "num_bytes", "fingerprint"}`. Hidden files, of downloaders, don't count."""
    where = str(path)
    try:
        sizes = _sizes(where) if os.path.isdir(where) else {"": os.stat(where).st_size}
    except OSError as error:
        return _answer({}, "it does not exist" if isinstance(error, FileNotFoundError) else error.strerror)
    if not sizes:
        return _answer({}, "its folder is empty")
    if not os.access(where, os.R_OK):
        return _answer(sizes, "it can't be read")
    return _answer(sizes, None)


def _sizes(folder: str) -> dict[str, int]:
    """By path below `folder`. Links are followed: the cache of a hub consists of them."""
    found: dict[str, int] = {}
    for parent, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in names:
            path = os.path.join(parent, name)
            if not name.startswith(".") and len(found) < MAX_FILES:
                found[os.path.relpath(path, folder)] = os.stat(path).st_size
    return found


def _answer(sizes: dict[str, int], problem: str | None) -> dict:
    text = "".join("%s\t%d\n" % item for item in sorted(sizes.items()))
    return {
        "problem": problem,
        "num_files": len(sizes),
        "num_bytes": sum(sizes.values()),
        "fingerprint": "%08x-%d" % (zlib.crc32(text.encode("utf-8", "surrogateescape")), len(text)),
    }
