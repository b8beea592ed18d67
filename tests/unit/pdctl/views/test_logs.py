from __future__ import annotations

import re

from pdctl.views.canvas import Canvas
from pdctl.views.logs import LogPrefixes


def test_every_line_begins_with_its_process() -> None:
    prefixes = LogPrefixes(Canvas(unicode=False))
    assert prefixes.line("prefill-0.0", "loading") == "prefill-0.0 | loading"
    assert prefixes.line("router-0.0", "ready") == "router-0.0  | ready"


def test_a_line_is_never_shortened() -> None:
    assert LogPrefixes(Canvas(width=40)).line("decode-0.0", "x" * 500).endswith("x" * 500)


def test_processes_differ_in_colour_and_keep_it() -> None:
    prefixes = LogPrefixes(Canvas(color=True))
    lines = [prefixes.line(each, "x") for each in ("a", "b", "a")]
    styles = [re.findall(r"\x1b\[(\d+)m", line)[0] for line in lines]
    assert styles[0] == styles[2] != styles[1]


def test_what_a_process_writes_cannot_steer_the_terminal() -> None:
    assert LogPrefixes(Canvas()).line("a", "\x1b[2Jx\x07") == "a │ x"
