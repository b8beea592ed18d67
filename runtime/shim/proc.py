"""What /proc tells about processes, and signals that never reach a stranger.

A pid alone proves nothing: numbers are reused. A process is named by its pid and its start, in ticks since
boot.
"""

from __future__ import annotations

import errno
import os

from .record import OUTPUT, SPEC, is_run_id
from .signals import signal

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
KERNEL_THREAD = 0x00200000  # PF_KTHREAD; a large machine has thousands
CHUNK_BYTES = 64 << 10
RUN_DIR_VARIABLE = "PDCTL_RUN_DIR"
PROCESS_VARIABLE = "PDCTL_PROCESS"
NODE_VARIABLE = "PDCTL_NODE"
REMOVED = " (deleted)"  # behind the name, in the link to a file that is gone


class Process:
    """One living process, as it was when its /proc entry was read."""

    __slots__ = (
        *("command", "group", "is_kernel", "parent", "pid", "rss_bytes", "session", "start_ticks"),
        "state",
    )

    def __init__(self, pid: int, stat: bytes) -> None:
        # The command, in parentheses, may itself hold spaces and parentheses: count from the last one.
        opening, closing = stat.index(b"("), stat.rindex(b")")
        fields = stat[closing + 2 :].split()
        self.pid = pid
        self.command = stat[opening + 1 : closing].decode("utf-8", "replace")
        self.state = fields[0].decode("ascii")
        self.parent = int(fields[1])
        self.group = int(fields[2])
        self.session = int(fields[3])
        self.is_kernel = bool(int(fields[6]) & KERNEL_THREAD)
        self.start_ticks = int(fields[19])
        self.rss_bytes = int(fields[21]) * PAGE_BYTES

    @property
    def identity(self) -> tuple[int, int]:
        return (self.pid, self.start_ticks)


class Table:
    """All living processes at one moment. Zombies count as dead: an init that reaps late fools nobody.

    `known` carries environment markers from an earlier table, since reading environments is the slow part.
    """

    def __init__(self, known: dict | None = None) -> None:
        self.processes: dict[int, Process] = {}
        self._markers: dict[tuple[int, int], dict[str, str]] = {} if known is None else known
        self._children: dict[int, list[int]] = {}
        for name in os.listdir("/proc"):
            process = read_process(int(name)) if name.isdigit() else None
            if process:
                self.processes[process.pid] = process
                self._children.setdefault(process.parent, []).append(process.pid)

    def find(self, pid: object, start_ticks: object) -> Process | None:
        """The process with this very identity, if it lives."""
        process = self.processes.get(pid) if isinstance(pid, int) else None
        return process if process and process.start_ticks == start_ticks else None

    def tree(self, pid: int) -> list[Process]:
        """A process and its descendants."""
        found, pending = [], [pid]
        while pending:
            current = pending.pop()
            if current in self.processes:
                found.append(self.processes[current])
            pending.extend(self._children.get(current, ()))
        return found

    def carriers(self, directory: str) -> list[tuple[Process, dict[str, str]]]:
        """Processes that belong to a run at or below `directory`, by their environment or their output.

        Both survive setsid, double fork and a shim that died. `env -i` takes the first, and so does a program
        that writes its title over it, as SGLang's schedulers do; only a redirection takes the second.
        """
        below = directory.rstrip("/") + "/"
        markers = [(process, self._marker(process)) for process in self.processes.values()]
        return [each for each in markers if each[1] and (each[1][RUN_DIR_VARIABLE] + "/").startswith(below)]

    def marker_of(self, pid: int) -> dict[str, str]:
        """`PDCTL_...` variables of a process; empty when pdctl did not start it."""
        process = self.processes.get(pid)
        return self._marker(process) if process else {}

    def session(self, number: object) -> list[Process]:
        """Living members of a session."""
        return [process for process in self.processes.values() if process.session == number]

    def _marker(self, process: Process) -> dict[str, str]:
        marker = self._markers.get(process.identity)
        if marker is None:
            marker = {}
            if not process.is_kernel:
                marker = _environment_marker(process.pid) or _output_marker(process.pid)
            self._markers[process.identity] = marker
        return marker


def read_process(pid: int) -> Process | None:
    """None when there is no such process, or only its zombie."""
    try:
        process = Process(pid, _read("/proc/%d/stat" % pid))
    except OSError:  # it ended meanwhile
        return None
    return None if process.state in "ZX" else process


def send_signal(process: Process, number: int) -> bool:
    """Signal this very process; False when it has ended or may not be signalled."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except AttributeError:  # Python 3.8
        return _send_by_pid(process, number)
    except OSError as error:
        return error.errno == errno.ENOSYS and _send_by_pid(process, number)  # Linux before 5.3
    try:
        # Checked with the descriptor open, so the number can't pass to another process in between.
        if not is_same(process):
            return False
        signal.pidfd_send_signal(descriptor, number)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def boot_id() -> str:
    """Changes with each boot of the host, which makes pids and ticks of the last boot meaningless."""
    return _read("/proc/sys/kernel/random/boot_id").decode().strip()


def _send_by_pid(process: Process, number: int) -> bool:
    if not is_same(process):
        return False
    try:
        os.kill(process.pid, number)
    except OSError:
        return False
    return True


def is_same(process: Process) -> bool:
    """Whether this very process still lives."""
    now = read_process(process.pid)
    return now is not None and now.start_ticks == process.start_ticks


def _read(path: str) -> bytes:
    """A file of /proc. `open` would take twice as long, most of it for what such files don't have."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        found = chunk = os.read(descriptor, CHUNK_BYTES)
        while chunk:
            chunk = os.read(descriptor, CHUNK_BYTES)
            found += chunk
        return found
    finally:
        os.close(descriptor)


def _environment_marker(pid: int) -> dict[str, str]:
    try:
        environ = _read("/proc/%d/environ" % pid)
    except OSError:  # it ended, or is another user's
        return {}
    if RUN_DIR_VARIABLE.encode() not in environ:
        return {}
    pairs = (
        os.fsdecode(entry).partition("=") for entry in environ.split(b"\0") if entry.startswith(b"PDCTL_")
    )
    marker = {name: value for name, _, value in pairs}
    return marker if RUN_DIR_VARIABLE in marker else {}


def _output_marker(pid: int) -> dict[str, str]:
    """What the environment would say, told by a stdout or stderr that is the output file of a run.

    Such a process has it from the worker: shims and readers hold that file under other numbers.
    """
    for number in (1, 2):
        try:
            path = os.readlink("/proc/%d/fd/%d" % (pid, number))
        except OSError:  # it ended, is another user's, or has closed it
            continue
        run_dir, _, name = path.rpartition("/")
        names = run_dir.split("/")[-3:]
        if name in (OUTPUT, OUTPUT + REMOVED) and len(names) == 3 and _may_be_run(run_dir):
            return {RUN_DIR_VARIABLE: run_dir, PROCESS_VARIABLE: "/".join(names)}
    return {}


def _may_be_run(directory: str) -> bool:
    """Other programs, too, number folders and call a file `output.log`; they put no spec beside it."""
    if not is_run_id(os.path.basename(directory)):
        return False
    return os.path.exists(os.path.join(directory, SPEC)) or not os.path.exists(directory)
