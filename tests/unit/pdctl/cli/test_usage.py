from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Pdctl = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "error", "hint"),
    [
        (["plna"], "no command `plna`, did you mean `plan`?", "`pdctl --help` shows what there is"),
        (["frobnicate"], "no command `frobnicate`", "`pdctl --help` shows what there is"),
        (["plan"], "missing argument 'FILE'", "`pdctl plan --help` shows what there is"),
        (["logs", "a/decode-0", "b/decode-0"], "these ids are of `a` and `b`", "one deployment at a time"),
        (["logs", "-n", "a", "b/decode-0"], "these ids are of `a` and `b`", "one deployment at a time"),
        (["down"], "no deployment is on record", "`pdctl up FILE` starts one"),
        (
            ["list", "planets"],
            "no kind `planets`",
            "kinds are topologies, engines, routers, executors, backends, models",
        ),
    ],
)
def test_wrong_usage_is_one_error_one_hint_and_exit_code_1(
    pdctl: Pdctl, words: list[str], error: str, hint: str
) -> None:
    ran = pdctl(*words)
    assert ran.err == f"error: {error}\n\nhint: {hint}\n"
    assert (ran.code, ran.out) == (1, "")


def test_a_global_option_behind_the_verb_is_told_where_it_belongs(pdctl: Pdctl) -> None:
    ran = pdctl("plan", "x.yaml", "--color", "never")
    assert "hint: global options stand before the verb, as in `pdctl --quiet plan ...`" in ran.err
