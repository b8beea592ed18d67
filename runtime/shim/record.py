"""Files of one run: `ROOT/<deployment>/<process_id>/<run_id>/`, never used for a second run.

    spec.json     what was asked for status.json   who runs: pids with their start ticks, boot id; written
    once, before the program begins exit.json     how it ended; its space is reserved at the start, so that
    it fits on a disk that filled up since output.log    stdout and stderr; output.log.1 is what was rotated
    away

Beside the runs, `ROOT/<deployment>/<process_id>/lock` is held (flock) by the shim as long as it lives.
"""

from __future__ import annotations

import fcntl
import os

from . import jsontext

LOCK = "lock"
PLAN = "plan.json"
SPEC = "spec.json"
STATUS = "status.json"
EXIT = "exit.json"
OUTPUT = "output.log"
OUTPUT_ROTATED = "output.log.1"
REMOVING = ".removing-"  # begins the name of a directory that is none any more
EXIT_BYTES = 4096
MAX_FILE_BYTES = 8 << 20
MAX_TRIES = 1000
MAX_NODES = 4096

# By hand: loading `re` costs more CPU than all else that a call does.
_NAME_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789.-")
_MAX_NAME_LEN = 127
_DIGITS = frozenset("0123456789")
_RUN_ID_LEN = 6


class RequestError(Exception):
    """The request makes no sense; its text is the answer."""


def check_name(name: object) -> str:
    """Deployment and process names become path segments, so nothing may pass that could lead elsewhere."""
    if not isinstance(name, str) or not is_name(name):
        raise RequestError("`%s` is not a name" % (name,))
    return name


def is_run_id(name: str) -> bool:
    return len(name) == _RUN_ID_LEN and _DIGITS.issuperset(name)


def is_name(text: str) -> bool:
    return (
        0 < len(text) <= _MAX_NAME_LEN
        and _NAME_LETTERS.issuperset(text)
        and text[0] not in ".-"
        and ".." not in text
    )


def checked_nodes(nodes: object) -> list[dict]:
    """What is asked of each node that this machine stands for."""
    if not isinstance(nodes, list) or len(nodes) > MAX_NODES or not all(isinstance(n, dict) for n in nodes):
        raise RequestError("`nodes` is not a list of at most %d objects" % MAX_NODES)
    return nodes


def run_ids(process_dir: str) -> list[str]:
    """Runs of a process, oldest first."""
    try:
        return sorted(name for name in os.listdir(process_dir) if is_run_id(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def process_ids(deployment_dir: str) -> list[str]:
    """Processes that have a directory, in the order of their names."""
    try:
        names = sorted(os.listdir(deployment_dir))
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [
        name
        for name in names
        if not name.startswith(REMOVING) and os.path.isdir(os.path.join(deployment_dir, name))
    ]


def is_elsewhere(process_dir: str, node: object) -> bool:
    """Whether the process belongs to another node: nodes may share a file system, a home for example."""
    runs = run_ids(process_dir) if node is not None else []
    owner = read_json(os.path.join(process_dir, runs[-1], SPEC)).get("node") if runs else None
    return owner is not None and owner != node


def make_private_dirs(path: str) -> None:
    """Environments may hold secrets, so directories that we make are the user's alone."""
    old = os.umask(0o077)
    try:
        os.makedirs(path, exist_ok=True)
    finally:
        os.umask(old)


def write_json(path: str, value: object) -> None:
    write_text(path, jsontext.dumps(value))


def write_text(path: str, text: str) -> None:
    """Replace a file: after a crash at any moment it holds the old content or the new one."""
    temporary = "%s.%d.tmp" % (path, os.getpid())
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        os.unlink(temporary)
        raise


def read_json(path: str) -> dict:
    """The object in a file; empty when the file is missing, cut off, or anything else."""
    try:
        with open(path, "rb") as file:
            value = jsontext.loads(file.read(MAX_FILE_BYTES).rstrip(b"\0"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def remove_tree(path: str) -> None:
    """Remove a directory and all in it, as far as that is possible. Links in it are not followed.

    `shutil` would do it, too; loading that costs more than removing.
    """
    try:
        for _path, folders, files, place in os.fwalk(path, topdown=False):
            for name in (*files, *folders):
                _remove_entry(name, place)
        os.rmdir(path)
    except OSError:  # another call was faster, or something in it can't be removed
        pass


def _remove_entry(name: str, place: int) -> None:
    try:
        os.unlink(name, dir_fd=place)
    except IsADirectoryError:
        os.rmdir(name, dir_fd=place)


def reserve_exit(path: str) -> int:
    """Make an exit record without content and allocate its blocks now; returns the open file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.posix_fallocate(descriptor, 0, EXIT_BYTES)
    return descriptor


def write_exit(descriptor: int, record: dict) -> None:
    """Fill the reserved space: one write in place, which needs no new blocks."""
    text = jsontext.dumps(record).encode()
    if len(text) > EXIT_BYTES:
        text = jsontext.dumps(dict(record, reason=str(record.get("reason"))[:200])).encode()
    os.pwrite(descriptor, text.ljust(EXIT_BYTES, b"\0"), 0)
    os.fsync(descriptor)


def lock_in(directory: str, name: str, wait: bool = False) -> int | None:
    """`lock_file` in a directory that is made if needed, and that others may remove at any moment."""
    for _ in range(MAX_TRIES):
        try:
            make_private_dirs(directory)
            return lock_file(os.path.join(directory, name), wait)
        except (FileNotFoundError, FileExistsError):  # makedirs, too, gives the latter in that race
            continue
    make_private_dirs(directory)
    return lock_file(os.path.join(directory, name), wait)


def lock_file(path: str, wait: bool = False) -> int | None:
    """Open and flock a file that its holder may remove; None when another process holds it."""
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            # The file may have been removed between open and flock: then this lock guards nothing.
            if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except FileNotFoundError:
            pass
        os.close(descriptor)
