"""How one node is reached: the protocol that local, SSH and Slurm transports implement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

# Codes of diagnostics about nodes that can't be reached: in general, and for each reason that is known.
UNREACHABLE_CODES = frozenset(
    {"PD503", *(f"PD{number}" for number in range(515, 525)), "PD533", "PD534", "PD538", "PD539"}
)


class UnreachableError(Exception):
    """A node doesn't answer: the connection failed, was cut, or a call took longer than its limit.

    Its text is the reason, without the node's name, so that nodes with one reason can be told together. The
    rest is for a diagnostic about it: what differs between nodes stands in `notes` and `commands`.
    """

    def __init__(
        self,
        reason: str,
        *,
        code: str = "PD503",
        notes: tuple[str, ...] = (),
        help: str | None = None,
        commands: tuple[str, ...] = (),
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.notes = notes
        self.help = help
        self.commands = commands  # that mend it, to be pasted; `help` introduces them


@dataclass(frozen=True, slots=True, kw_only=True)
class Completed:
    """One finished command."""

    code: int  # negative when a signal ended it: minus its number, or -1 where the transport doesn't tell it
    stdout: bytes
    stderr: bytes


class LineStream(Protocol):
    """Lines of a running command as they come, without their ends; `close` ends the command."""

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Shell(Protocol):
    """A way to run commands on one node. argv reaches the command as it is, whatever it holds.

    `UnreachableError` leaves open whether a command has begun: no transport sends one twice, so whoever asked
    may repeat it if it is idempotent. Only what comes before, such as connecting, is tried again by itself;
    and `put`, which is idempotent.
    """

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        """Run to the end. A program that the node lacks is code 127, as in a shell; `UnreachableError`
        is a lost connection, or no end within `timeout_s`.
        """
        ...

    def put(self, path: str, content: bytes) -> None:
        """Write a file for the user alone, atomically: others see the old one or the whole new one."""
        ...

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> LineStream:
        """Start a command and give its output while it runs."""
        ...
