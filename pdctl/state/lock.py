"""Who holds a deployment's lock, and whether its owner has died.

The lock itself lies on a node (`Executor.lock`). Only an owner's own machine can tell that the owner is
dead, so that judgement is made here, on the machine of the operator who wants the lock next.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
import uuid
from dataclasses import asdict, dataclass
from pathlib import Path

from pdctl.fields import Fields


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """One run of one verb by one operator. `token` is its identity; the rest informs, and proves death."""

    token: str
    who: str  # `user@host`
    verb: str
    since: float  # seconds since the epoch, by the operator's clock
    host: str
    boot_id: str
    pid_namespace: int  # inode; a pid means nothing outside its namespace
    pid: int
    start_ticks: int  # tells this pid from a later process with the same number

    def to_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Acquired:
    """The lock is ours. `dead_owner` held it before and can't give it back any more."""

    dead_owner: Owner | None = None
    instead_of: tuple[str, ...] = ()  # nodes that should have it, but can't be reached


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """Somebody else works on the deployment."""

    holder: Owner


LockOutcome = Acquired | Held


def owner_from_fields(fields: Fields) -> Owner:
    """Read what `Owner.to_json` gave; `FieldError` when it is damaged."""
    return Owner(
        token=fields.text("token"),
        who=fields.text("who"),
        verb=fields.text("verb"),
        since=fields.number("since"),
        host=fields.text("host"),
        boot_id=fields.text("boot_id"),
        pid_namespace=fields.integer("pid_namespace"),
        pid=fields.integer("pid"),
        start_ticks=fields.integer("start_ticks"),
    )


def operator() -> str:
    """Who works here: `user@host`."""
    return f"{_user_name()}@{socket.gethostname()}"


def this_owner(verb: str) -> Owner:
    """Describe the calling process, with a new token."""
    return Owner(
        token=uuid.uuid4().hex,
        who=operator(),
        verb=verb,
        since=time.time(),
        host=socket.gethostname(),
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        pid=os.getpid(),
        start_ticks=_start_ticks(os.getpid()) or 0,
    )


def is_dead(owner: Owner) -> bool:
    """True only when this machine can prove it; an owner elsewhere, or in another container, is alive."""
    if owner.host != socket.gethostname():
        return False
    if owner.boot_id != _boot_id():
        return True
    return owner.pid_namespace == _pid_namespace() and _start_ticks(owner.pid) != owner.start_ticks


def _user_name() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without an entry in passwd
        return f"uid-{os.getuid()}"


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_ticks(pid: int) -> int | None:
    """Ticks since boot at which a living process began; None when it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The command, in parentheses, may itself hold spaces and parentheses: count from the last one.
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else int(fields[19])
