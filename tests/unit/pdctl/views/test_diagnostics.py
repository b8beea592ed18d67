from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdctl.diagnostics import Diagnostic, Excerpt, Severity, Span
from pdctl.views.canvas import Canvas
from pdctl.views.diagnostics import diagnostic_lines, report_lines, summary
from pdctl.views.text import display_width

Golden = Callable[[str, str], None]


def span(text: str, column: int, length: int, *, line: int = 3) -> Span:
    return Span(file="a.yaml", line=line, column=column, length=length, text=text)


PAGE_SIZE = Diagnostic(
    code="PD302",
    message="prefill and decode use different page sizes",
    span=Span(file="topologies/h200-1p2d.yaml", line=24, column=16, length=2, text="    page-size: 64"),
    label="decode",
    notes=(
        "prefill takes 1, the default of sglang 0.5.23",
        "requests abort when the decode side reads the prefill's layout (sglang #14439)",
    ),
    help="set `page-size` once, under `defaults.args`",
)
ENDED = Diagnostic(
    code="PD602",
    message="`prefill-0.0` exited with code 1 before the deployment was ready",
    notes=("it ran for 1.2 s on `localhost`",),
    help="mend the cause and run `pdctl up` again: what serves already is kept",
    excerpts=(
        Excerpt(
            title="last lines of `prefill-0.0`",
            lines=(
                "Traceback (most recent call last):",
                "\x1b[31mValueError\x1b[0m: \tno weights in /a/folder/that/somebody/gave/a/long/name",
            ),
        ),
    ),
)
OVERLAY = Diagnostic(
    code="PD117",
    severity=Severity.WARNING,
    message="`--set` says a value twice",
    path="decode.instances",
)
SCREEN = (PAGE_SIZE, ENDED, OVERLAY)


def test_many_alike_faults_are_one_block(golden: Golden) -> None:
    ended = [
        replace(
            ENDED,
            message=ENDED.message.replace("prefill-0", f"prefill-{number}"),
            notes=(f"it ran for {1.2 if number else 0.9} s on `n{number + 1:02}`",),
            excerpts=(
                Excerpt(title=f"last lines of `prefill-{number}.0`", lines=(f"no port {3000 + number}",)),
            ),
            names=(f"prefill-{number}.0", f"n{number + 1:02}"),
        )
        for number in range(16)
    ]
    taken = [
        Diagnostic(
            code="PD410",
            message=f"port 30000 on `{node}` is taken by `old/prefill-{number}.0` of pdctl",
            notes=(f"`decode-{number}.0` needs it as its http port",),
            help="`pdctl down old`, or choose other ports",
            names=(f"decode-{number}.0", node, f"old/prefill-{number}.0"),
        )
        for number, node in enumerate(("n17", "n18"))
    ]
    lines = report_lines((*ended, *taken), Canvas(width=80))
    golden("screens/diagnostics-alike.txt", "\n".join(lines) + "\n")


def drawn(diagnostic: Diagnostic, canvas: Canvas | None = None) -> list[str]:
    return list(diagnostic_lines(diagnostic, canvas or Canvas()))


@pytest.mark.parametrize("width", [None, 80, 40])
def test_the_screen_of_diagnostics(golden: Golden, width: int | None) -> None:
    lines = report_lines(SCREEN, Canvas(width=width))
    golden(f"screens/diagnostics-{width or 'pipe'}.txt", "\n".join(lines) + "\n")


def test_the_screen_of_diagnostics_in_colour(golden: Golden) -> None:
    lines = report_lines(SCREEN, Canvas(width=80, color=True))
    golden("screens/diagnostics-colour.txt", "\n".join(lines) + "\n")


def test_the_screen_of_diagnostics_in_ascii() -> None:
    text = "\n".join(report_lines(SCREEN, Canvas(width=80, unicode=False)))
    assert text.isascii()


def test_carets_stand_under_wide_characters_and_tabs() -> None:
    lines = drawn(Diagnostic(code="PD101", message="x", span=span("\t日本: 語語 # end", 6, 2), label="here"))
    assert lines[3] == "3 |     日本: 語語 # end"
    assert lines[4] == "  |           ^^^^ here"


def test_an_empty_span_gets_one_caret_behind_the_line() -> None:
    lines = drawn(Diagnostic(code="PD101", message="x", span=span("name:", 99, 0)))
    assert lines[4] == "  |      ^"


def test_the_marked_text_of_a_long_line_stays_in_view() -> None:
    text = "x" * 300 + "BAD" + "y" * 300
    lines = drawn(Diagnostic(code="PD101", message="x", span=span(text, 301, 3)), Canvas(width=60))
    start = lines[4].index("^^^")
    assert lines[3][start : start + 3] == "BAD"
    assert all(display_width(line) <= 60 for line in lines)


def test_control_characters_of_the_source_are_shown_as_question_marks() -> None:
    lines = drawn(Diagnostic(code="PD104", message="x", span=span("a\x1b[2Jb", 2, 1)))
    assert lines[3] == "3 | a?[2Jb"
    assert lines[4] == "  |  ^"


def test_the_gutter_is_as_wide_as_the_line_number() -> None:
    lines = drawn(Diagnostic(code="PD101", message="x", span=span("a", 1, 1, line=1234), notes=("n",)))
    assert lines[1:] == [
        "    --> a.yaml:1234:1",
        "     |",
        "1234 | a",
        "     | ^",
        "     |",
        "     = note: n",
    ]


def test_a_hint_of_several_lines_keeps_them() -> None:
    lines = drawn(Diagnostic(code="PD604", message="x", help="two ways:\n- pull it\n- copy it"))
    assert lines[-3:] == ["hint: two ways:", "      - pull it", "      - copy it"]


def test_the_summary_counts_each_severity_and_names_the_file() -> None:
    assert summary((PAGE_SIZE, ENDED, OVERLAY)) == "2 errors, 1 warning"
    assert list(report_lines((PAGE_SIZE,), Canvas()))[-1] == "1 error in topologies/h200-1p2d.yaml"


def test_a_single_fault_without_a_file_needs_no_summary() -> None:
    assert list(report_lines((ENDED,), Canvas()))[-1].startswith("hint: ")


@given(
    text=st.text(max_size=200),
    column=st.integers(1, 250),
    length=st.integers(0, 250),
    width=st.integers(40, 100),
)
def test_any_span_draws_lines_that_fit(text: str, column: int, length: int, width: int) -> None:
    lines = drawn(Diagnostic(code="PD101", message="x", span=span(text, column, length)), Canvas(width=width))
    assert "^" in lines[4]
    assert all(display_width(line) <= width for line in lines)
