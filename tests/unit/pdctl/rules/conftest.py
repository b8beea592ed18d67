"""Topologies from a few lines, and what the rules say about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.rules import check
from pdctl.topology.load import load_text

HEAD = """\
schema: pdctl/v1
name: demo
model: {path: builtin:smollm2-135m-instruct}
engine: {kind: reference}
"""


@pytest.fixture
def found() -> Callable[..., list[str]]:
    """`found(lines, "PD201")` as `error 2:12 message`, only that code, counted from the first of `lines`."""

    def of(lines: str, code: str, *, engine: str = "reference") -> list[str]:
        head = HEAD.replace("kind: reference", f"kind: {engine}")
        missing = "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if f"{role}:" not in lines)
        topology = load_text(head + lines + missing).require()
        return [
            f"{each.severity} {each.span.line - head.count(chr(10))}:{each.span.column} {each.message}"
            for each in check(topology)
            if each.code == code and each.span is not None
        ]

    return of


@pytest.fixture
def hints() -> Callable[[str, str], list[str | None]]:
    """`hints(lines, "PD126")` as the hints of what is found with that code."""

    def of(lines: str, code: str) -> list[str | None]:
        missing = "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if f"{role}:" not in lines)
        head = HEAD if "engine:" not in lines else HEAD.replace("engine: {kind: reference}\n", "")
        topology = load_text(head + lines + missing).require()
        return [each.help for each in check(topology) if each.code == code]

    return of
