"""References to environment variables in a document."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from pdctl.topology.compose import compose
from pdctl.topology.environment import Substituted, substitute
from pdctl.topology.text import SourceText
from pdctl.topology.tree import Value, flatten


def substituted(text: str, environ: Mapping[str, str]) -> Substituted:
    tree = compose(SourceText(file="f", text=text)).tree
    assert tree is not None
    return substitute(tree, environ)


def value(text: str, environ: Mapping[str, str]) -> Value:
    result = substituted(text, environ)
    assert result.diagnostics == ()
    return flatten(result.tree).value


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: ${HOST}", "example"),
        ("a: http://${HOST}:${PORT}", "http://example:8000"),
        ("a: ${PORT}", 8000),
        ("a: '${PORT}'", "8000"),
        ("a: ${NONE:-7}", 7),
        ("a: ${NONE:-}", None),
        ("a: ${EMPTY:-full}", "full"),
        ("a: '${EMPTY}'", ""),
        ("a: $${HOST}", "${HOST}"),
        ("a: $HOST", "$HOST"),
        ("a: ${ON}", "on"),
    ],
)
def test_references_are_replaced(text: str, expected: Value) -> None:
    environ = {"HOST": "example", "PORT": "8000", "EMPTY": "", "ON": "on"}
    assert value(text, environ) == {"a": expected}


def test_a_value_is_not_looked_at_again() -> None:
    assert value("a: ${A}", {"A": "${B}", "B": "x"}) == {"a": "${B}"}


def test_private_keys_are_left_alone() -> None:
    assert value("x-note: ${NONE}", {}) == {"x-note": "${NONE}"}


def test_uses_are_recorded_with_their_place() -> None:
    uses = substituted("a: [x, 'is ${HOST} or ${NONE:-y}']", {"HOST": "h"}).uses
    assert [(use.name, use.value, use.span.column, use.span.length) for use in uses] == [
        ("HOST", "h", 12, 7),
        ("NONE", None, 23, 10),
    ]


def test_unset_variables_are_all_reported() -> None:
    faults = substituted("a: ${ONE}\nb: ${TWO}\n", {}).diagnostics
    assert [(each.code, each.message) for each in faults] == [
        ("PD115", "the environment variable `ONE` is not set"),
        ("PD115", "the environment variable `TWO` is not set"),
    ]


def test_a_variable_of_a_similar_name_is_pointed_out() -> None:
    (fault,) = substituted("a: ${MODEL_PTAH}", {"MODEL_PATH": "/models"}).diagnostics
    assert fault.help is not None
    assert fault.help.endswith("`MODEL_PATH` is set")


@pytest.mark.parametrize("text", ["${}", "${A B}", "${1A}", "${A-x}", "${A"])
def test_malformed_references_are_refused(text: str) -> None:
    (fault,) = substituted(f"a: '{text}'", {"A": "x"}).diagnostics
    assert fault.code == "PD116"
