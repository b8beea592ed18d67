"""What changes the digest of a topology, and what doesn't."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.topology.digest import topology_digest
from pdctl.topology.load import load_text


def digest(text: str, **environ: str) -> str:
    return topology_digest(load_text(text, environ=environ).require())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: "# a comment\n\n" + text,
        lambda text: "\n".join(reversed(text.splitlines())),
        lambda text: text + "x-team: inference\n",
        lambda text: text.replace("instances: 2", "instances: 2, x-why: load"),
        lambda text: text.replace("decode: {instances: 2}", "decode:\n  instances: ${COUNT}"),
        lambda text: text + "router: {kind: mini_lb}\nhealth: {canary: true}\n",
        lambda text: text + "profiles: {big: {decode: {instances: 4}}}\n",
    ],
)
def test_what_says_the_same_has_the_same_digest(document: str, change: Callable[[str], str]) -> None:
    assert digest(change(document), COUNT="2") == digest(document)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("instances: 2", "instances: 3"),
        ("name: demo", "name: demo2"),
        ("instances: 2", 'instances: 2, env: {A: "1"}'),
        ("instances: 2", "instances: 2, args: {a: '1'}"),
    ],
)
def test_what_says_something_else_has_another(document: str, before: str, after: str) -> None:
    assert digest(document.replace(before, after)) != digest(document)


def test_text_and_number_are_different(document: str) -> None:
    number, text = "instances: 2, args: {a: 1}", "instances: 2, args: {a: '1'}"
    assert digest(document.replace("instances: 2", number)) != digest(document.replace("instances: 2", text))


def test_the_digest_is_a_sha256(document: str) -> None:
    assert len(digest(document)) == 64
