"""What the source tells of a value, and what it doesn't."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

import pytest

from pdctl.inspection.expressions import Evaluator, Scope, UnreadableError
from pdctl.inspection.modules import Modules

Written = Callable[..., Modules]

CHOICES = """
import argparse
from enum import Enum
from pkg.other import FAR, Backend as Kernel
from pkg import other
from .other import far_names
NEAR = ["a", "b"]
SIZE = 64 * 2**20
class Mode(Enum):
    FAST = "fast"
    SLOW = "slow"
class Parser:
    KINDS = {"one": Unknown(), "two": len}
    NAMES = NEAR
def plain():
    return list(NEAR)
def lazy():
    module = look_around()
    if module is not None:
        return module.names
    from pkg.other import FAR as later
    return later + ["z"]
if True:
    LATE = ["late"]
"""
OTHER = """
FAR = ("x", "y")
def far_names(): return [*FAR, "w"]
class Backend:
    FULL = "full"
    ALL = [FULL, "none"]
"""


def value(written: Written, text: str, **local: object) -> object:
    modules = written(**{"pkg.__init__": "", "pkg.mod": CHOICES, "pkg.other": OTHER})
    module = modules.get("pkg.mod")
    assert module is not None
    expression = ast.parse(text, mode="eval").body
    return Evaluator(modules).value(expression, Scope(module=module, local=local))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("NEAR", ["a", "b"]),
        ("FAR", ["x", "y"]),
        ("other.FAR", ["x", "y"]),
        ("NEAR + ['c']", ["a", "b", "c"]),
        ("['auto'] + list(FAR)", ["auto", "x", "y"]),
        ("set(NEAR)", ["a", "b"]),
        ("Kernel.FULL", "full"),
        ("Kernel.ALL", ["full", "none"]),
        ("Parser.NAMES", ["a", "b"]),
        ("list(Parser.KINDS.keys())", ["one", "two"]),
        ("[each.name.lower() for each in Mode]", ["fast", "slow"]),
        ("[each.value for each in Mode]", ["fast", "slow"]),
        ("plain()", ["a", "b"]),
        ("lazy()", ["x", "y", "z"]),
        ("far_names()", ["x", "y", "w"]),
        ("LATE", ["late"]),
        ("SIZE", 64 << 20),
        ("NEAR[0]", "a"),
        ("-1", -1),
        ("f'--{prefix}policy'", "--router-policy"),
        ("'router-' if prefix else ''", "router-"),
        ("field(default_factory=list)", []),
        ("field(default_factory=lambda: list(NEAR))", ["a", "b"]),
        ("field(default=3)", 3),
    ],
)
def test_what_the_source_tells_is_read(written: Written, text: str, expected: object) -> None:
    assert value(written, text, prefix="router-") == expected


@pytest.mark.parametrize(
    "text",
    [
        "UNKNOWN",
        "os.environ.get('A')",
        "argparse.SUPPRESS",
        "elsewhere()",
        "int('3')",
        "Mode.NONE",
        "lambda: 1",
        "NEAR[7]",
        "2**99999",
        "1 + 'a'",
        "-'a'",
        "[a for a, b in NEAR]",
    ],
)
def test_what_it_does_not_tell_is_unreadable(written: Written, text: str) -> None:
    with pytest.raises(UnreadableError):
        value(written, text)


def test_a_name_that_means_itself_ends(written: Written) -> None:
    modules = written(**{"a": "from b import X\nY = Y\n", "b": "from a import X\n"})
    module: Any = modules.get("a")
    for name in ("X", "Y"):
        with pytest.raises(UnreadableError):
            Evaluator(modules).value(ast.Name(id=name), Scope(module=module, local={}))
