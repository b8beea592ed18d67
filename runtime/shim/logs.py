"""The verbs `logs` and `tails`: output of several processes.

`logs` gives JSON lines `{"process_id", "run_id", "line"}`, `tails` one object: last lines by process id. An
empty line of `logs` is a sign of life.
"""

from __future__ import annotations

import os
import select
import sys
import time

from . import jsontext
from .record import OUTPUT, OUTPUT_ROTATED, RequestError, check_name, run_ids

POLL_S = 0.1
CUT_DEADLINE_S = 1.0
BEAT_S = 2.0  # a connection whose other end vanished is only noticed by sending something
CHUNK_BYTES = 256 << 10
MAX_LINE_BYTES = 64 << 10  # longer ones come in pieces


def stream_logs(root: str, deployment: str, process_ids: list[str], request: dict) -> None:
    """Print the last `tail` lines of each process (null: all that is kept), then, if asked, what follows.

    Following has no end of its own: it ends when the reader of our output goes away, also in a quiet time.
    A reader that comes back gives the last `mark` of each process, and gets what it has missed.
    """
    tail, follow, marks = request.get("tail"), bool(request.get("follow")), request.get("marks") or {}
    num_lines = tail if isinstance(tail, int) else None
    readers = [Reader(os.path.join(root, deployment, process_id), process_id) for process_id in process_ids]
    beat_at = time.monotonic() + BEAT_S
    try:
        for reader in readers:
            if not reader.resume(marks.get(reader.process_id)):
                _print(reader, reader.read_tail(num_lines))
        while follow and not _is_reader_gone():
            for reader in readers:
                _print(reader, reader.read_new())
            if time.monotonic() > beat_at:
                beat_at += BEAT_S
                sys.stdout.write("\n")
            sys.stdout.flush()
            time.sleep(POLL_S)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or the interpreter complains while it ends


def tails(root: str, deployment: str, process_ids: object, num_lines: object) -> dict[str, list[str]]:
    if not isinstance(process_ids, list) or not isinstance(num_lines, int):
        raise RequestError("`process_ids` is not a list, or `num_lines` not a number")
    names = [check_name(each) for each in process_ids]
    readers = [Reader(os.path.join(root, deployment, name), name) for name in names]
    return {
        reader.process_id: [_shown(line)[:MAX_LINE_BYTES] for line in reader.read_tail(num_lines)]
        for reader in readers
    }


class Reader:
    """Reads one process's output across rotation and into later runs."""

    def __init__(self, process_dir: str, process_id: str) -> None:
        self.process_id = process_id
        self.run_id: str | None = None
        self._process_dir = process_dir
        self._offset = 0
        self._rotation: int | None = None  # inode of the rotated file: a new one for each rotation
        self._partial = b""

    @property
    def mark(self) -> list:
        """Up to where everything was given: run, rotation, and offset of the first line that was not."""
        return [self.run_id, self._rotation, self._offset - len(self._partial)]

    def resume(self, mark: object) -> bool:
        """Go on at a mark; False when there is none, or it is none of ours."""
        if not isinstance(mark, list) or len(mark) != 3 or mark[0] not in run_ids(self._process_dir):
            return False
        run_id, rotation, offset = mark
        if not isinstance(offset, int):
            return False
        self.run_id, self._rotation, self._offset = run_id, rotation, max(0, offset)
        return True

    def read_tail(self, num_lines: int | None) -> list[bytes]:
        """The latest run's last lines, from the rotated file too if needed."""
        runs = run_ids(self._process_dir)
        if not runs:
            return []
        self.run_id = runs[-1]
        self._rotation = self._rotated_inode()
        text, self._offset = self._read_end(OUTPUT, num_lines)
        if num_lines is None or text.count(b"\n") < num_lines:
            text = self._read_end(OUTPUT_ROTATED, num_lines)[0] + text
        lines = text.split(b"\n")
        if not lines[-1]:
            # Else the last line lacks its end, and is shown now: its process may wait for long, or have died.
            lines.pop()
        return lines if num_lines is None else lines[max(0, len(lines) - num_lines) :]

    def _read_end(self, name: str, num_lines: int | None) -> tuple[bytes, int]:
        """At least the last `num_lines` lines of a file, if it has them, and the offset of its end."""
        try:
            with open(self._path(name), "rb") as file:
                end = start = file.seek(0, os.SEEK_END)
                text = b""
                while start and (num_lines is None or text.count(b"\n") <= num_lines):
                    start = max(0, start - CHUNK_BYTES)
                    file.seek(start)
                    text = file.read(min(CHUNK_BYTES, end - start - len(text))) + text
                return text, end
        except FileNotFoundError:  # not rotated yet, or removed
            return b"", 0

    def read_new(self) -> list[bytes]:
        """Lines that were completed since the last call."""
        runs = run_ids(self._process_dir)
        lines = self._read_current() if self.run_id in runs else []
        if runs and runs[-1] != self.run_id and not lines:
            # The old run's end was read; its last line may lack a newline.
            lines, self._partial = ([self._partial] if self._partial else []), b""
            if not lines:
                self.run_id, self._offset, self._rotation = runs[-1], 0, None
                lines = self._read_current()
        return lines

    def _read_current(self) -> list[bytes]:
        rotation = self._rotated_inode()
        if rotation != self._rotation:
            self._rotation = rotation
            rest = self._read(OUTPUT_ROTATED, self._offset)
            self._partial += rest
            self._wait_for_cut(self._offset + len(rest))
            self._offset = 0
        fresh = self._read(OUTPUT, self._offset)
        self._offset += len(fresh)
        *lines, self._partial = (self._partial + fresh).split(b"\n")
        if len(self._partial) > MAX_LINE_BYTES:
            lines.append(self._partial)
            self._partial = b""
        return lines

    def _wait_for_cut(self, num_bytes_read: int) -> None:
        """The copy appears a moment before the original is cut, which until then is no shorter."""
        deadline = time.monotonic() + CUT_DEADLINE_S
        while self._size() >= num_bytes_read > 0 and time.monotonic() < deadline:
            time.sleep(POLL_S / 10)

    def _size(self) -> int:
        try:
            return os.stat(self._path(OUTPUT)).st_size
        except FileNotFoundError:
            return 0

    def _read(self, name: str, offset: int) -> bytes:
        chunks = []
        try:
            with open(self._path(name), "rb") as file:
                file.seek(offset)
                while True:
                    chunk = file.read(CHUNK_BYTES)
                    if not chunk:
                        break
                    chunks.append(chunk)
        except FileNotFoundError:  # not rotated yet, or removed
            pass
        return b"".join(chunks)

    def _rotated_inode(self) -> int | None:
        try:
            return os.stat(self._path(OUTPUT_ROTATED)).st_ino
        except FileNotFoundError:
            return None

    def _path(self, name: str) -> str:
        return os.path.join(self._process_dir, self.run_id or "", name)


def _print(reader: Reader, lines: list[bytes]) -> None:
    """The last line of a read carries the mark: before it, some of that read is not given yet."""
    for number, line in enumerate(lines, 1):
        text = _shown(line)
        for start in range(0, max(1, len(text)), MAX_LINE_BYTES):
            piece = text[start : start + MAX_LINE_BYTES]
            entry = {"process_id": reader.process_id, "run_id": reader.run_id, "line": piece}
            if number == len(lines) and start + MAX_LINE_BYTES >= len(text):
                entry["mark"] = reader.mark
            sys.stdout.write(jsontext.dumps(entry) + "\n")


def _shown(line: bytes) -> str:
    """As a terminal shows it: a progress bar's carriage returns leave its last state."""
    return line.rstrip(b"\r").rpartition(b"\r")[2].decode("utf-8", "replace")


def _is_reader_gone() -> bool:
    poll = select.poll()
    poll.register(1, 0)  # no event asked for: hang-up and error are always told
    return any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll(0))
