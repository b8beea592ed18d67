"""A document that is right, and what happens to it when lines are changed or added."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.topology.load import Loaded, load_text

DOCUMENT = """\
schema: pdctl/v1
name: demo
model: {path: builtin:smollm2-135m-instruct}
engine: {kind: reference}
prefill: {instances: 1}
decode: {instances: 2}
"""


@pytest.fixture
def document() -> str:
    return DOCUMENT


@pytest.fixture
def faults() -> Callable[[str | bytes], list[str]]:
    """`faults(text)` as `PD110 4:3 message`, one per diagnostic."""

    def of(text: str | bytes) -> list[str]:
        return said(load_text(text))

    return of


def said(loaded: Loaded) -> list[str]:
    return [
        f"{each.code} {each.span.line}:{each.span.column} {each.message}"
        if each.span is not None
        else f"{each.code} {each.message}"
        for each in loaded.diagnostics
    ]


@pytest.fixture
def say() -> Callable[[Loaded], list[str]]:
    return said
