"""A shell that we own, in place of a node."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from pdctl.executors.shell import Completed, UnreachableError

LACKS_SHIM = Completed(code=2, stdout=b"", stderr=b"python3: can't open file '/x': [Errno 2] No such file")


class Lines:
    """A stream of given lines."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from self._lines

    def close(self) -> None:
        self.is_closed = True


@dataclass
class FakeShell:
    """Answers each call with the next of `answers`: an exception is raised, any other object is JSON."""

    answers: list[object] = field(default_factory=list)
    lines: list[dict[str, object]] = field(default_factory=list)
    calls: list[tuple[list[str], dict[str, object]]] = field(default_factory=list)
    files: dict[str, bytes] = field(default_factory=dict)

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        self.calls.append((list(argv), json.loads(stdin or b"{}")))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Completed):
            return answer
        return Completed(code=0, stdout=json.dumps(answer).encode(), stderr=b"")

    def put(self, path: str, content: bytes) -> None:
        self.files[path] = content

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> Lines:
        self.calls.append((list(argv), json.loads(stdin)))
        return Lines([json.dumps(line).encode() for line in self.lines])


@pytest.fixture
def make_shell() -> Callable[..., FakeShell]:
    return FakeShell


@pytest.fixture
def make_lines() -> Callable[[Sequence[bytes]], Lines]:
    return Lines


@pytest.fixture
def lacks_shim() -> Completed:
    return LACKS_SHIM


@pytest.fixture
def lost() -> UnreachableError:
    return UnreachableError("no answer within 30 s")
