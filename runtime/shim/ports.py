"""The verb `ports`: whether addresses can be bound, and who is in the way of those that can't."""

from __future__ import annotations

import errno
import os
import sys

from .proc import PROCESS_VARIABLE, Table
from .record import LOCK, RequestError
from .sockets import Socket, resolve, socket

MAX_QUERIES = 4096
LISTENING = "0A"


def ports(queries: object) -> list[dict]:
    """One `{"problem", "pid", "command", "process"}` per query; `problem` is null for a free port."""
    if not isinstance(queries, list) or len(queries) > MAX_QUERIES:
        raise RequestError("`queries` is not a list of at most %d" % MAX_QUERIES)
    problems = [_try_bind(query) for query in queries]
    if "taken" not in problems:
        return [_answer(problem) for problem in problems]
    table, sockets = Table(), _sockets()
    owners = _socket_owners({inode for found in sockets.values() for _, inode in found})
    return [
        _answer(problem, *_who(query, sockets, owners, table)) if problem == "taken" else _answer(problem)
        for query, problem in zip(queries, problems)
    ]


def _answer(
    problem: str | None, pid: int | None = None, command: str | None = None, process: str | None = None
) -> dict:
    return {"problem": problem, "pid": pid, "command": command, "process": process}


def _try_bind(query: object) -> str | None:
    """Bind for a moment: only this also sees ports of outgoing connections and of other users."""
    if not isinstance(query, dict) or not isinstance(query.get("port"), int):
        raise RequestError("a query has no `port`")
    if not 0 < query["port"] < 65536:  # the resolver would take it modulo 65536
        return "%d is not a port" % query["port"]
    host = query.get("host") or "0.0.0.0"
    try:
        family, _, _, _, address = resolve(host, query["port"], socket.SOCK_STREAM)[0]
        with Socket(family, socket.SOCK_STREAM) as attempt:
            # As servers do, so that connections in TIME_WAIT don't count.
            attempt.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            attempt.bind(address)
            attempt.listen(1)
    except socket.gaierror as error:
        return "`%s` has no address: %s" % (host, error.strerror)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return "taken"
        if error.errno == errno.EADDRNOTAVAIL:
            return "`%s` is not an address of this node" % host
        return os.strerror(error.errno or 0)
    return None


def _sockets() -> dict[int, list[tuple[str, str]]]:
    """Address and inode of TCP sockets by local port, those that listen first."""
    found: dict[int, list[tuple[str, str]]] = {}
    for path in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(path, encoding="ascii") as file:
                rows = [line.split() for line in file][1:]
        except OSError:  # no IPv6
            continue
        for row in rows:
            address, _, port = row[1].rpartition(":")
            there = found.setdefault(int(port, 16), [])
            there.insert(0 if row[3] == LISTENING else len(there), (address, row[9]))
    return found


def _socket_owners(inodes: set[str]) -> dict[str, int]:
    """Which process has a socket open, as far as we may look."""
    owners: dict[str, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            for descriptor in os.listdir("/proc/%s/fd" % name):
                target = os.readlink("/proc/%s/fd/%s" % (name, descriptor))
                if target.startswith("socket:[") and target[8:-1] in inodes:
                    owners.setdefault(target[8:-1], int(name))
        except OSError:  # it ended, or is another user's
            continue
    return owners


def _who(query: dict, sockets: dict, owners: dict, table: Table) -> tuple[int | None, str | None, str | None]:
    """Of sockets with this port on several addresses, only those that this address is in the way of."""
    in_the_way = _clashing(query.get("host") or "0.0.0.0", query["port"])
    pid = next(
        (
            owners[inode]
            for address, inode in sockets.get(query["port"], ())
            if inode in owners and (in_the_way is None or address in in_the_way)
        ),
        None,
    )
    if pid is None:
        return None, None, None
    return pid, _command_line(pid), process_of(pid, table)


def _clashing(host: str, port: int) -> set[str] | None:
    """The address as the kernel's tables write it, and those that stand for all; None: any is in the way."""
    family, _, _, _, address = resolve(host, port, socket.SOCK_STREAM)[0]
    packed = socket.inet_pton(family, address[0].partition("%")[0])
    if not any(packed):
        return None
    mapped = packed if len(packed) == 16 else bytes(10) + b"\xff\xff" + packed
    return {"0" * 8, "0" * 32, _as_in_tables(packed), _as_in_tables(mapped)}


def _as_in_tables(packed: bytes) -> str:
    """Words of four bytes, each as a number of this machine."""
    return "".join(
        "%08X" % int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4)
    )


def process_of(pid: int, table: Table) -> str | None:
    """`deployment/process` that something belongs to; None when pdctl did not start it.

    Its environment tells, unless it wrote a title over it (setproctitle), as the processes of SGLang and its
    router do. Then the environment of what it came from tells, or the lock that the shim above holds.
    """
    seen: set[int] = set()
    while pid in table.processes and pid not in seen:
        started = table.marker_of(pid).get(PROCESS_VARIABLE)
        if started:
            return started.rpartition("/")[0]
        supervised = _supervised_by(pid)
        if supervised:
            return supervised
        seen.add(pid)
        pid = table.processes[pid].parent
    return None


def _supervised_by(pid: int) -> str | None:
    """`deployment/process` of a shim: it keeps that process's lock file open as long as it lives."""
    words = (_command_line(pid) or "").split(" ")
    if words[1:3] != ["-I", "-S"]:
        return None
    try:
        targets = [os.readlink("/proc/%d/fd/%s" % (pid, name)) for name in os.listdir("/proc/%d/fd" % pid)]
    except OSError:  # it ended, or is another user's
        return None
    held = [target.split("/") for target in targets if target.endswith("/" + LOCK)]
    return "/".join(held[0][-3:-1]) if held else None


def _command_line(pid: int) -> str | None:
    try:
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            return file.read(4096).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return None
