import io
from pathlib import Path

from runtime.models.events import Done, Failed, Progress, Waiting
from runtime.models.screen import JsonLines, PlainLines, TerminalBar, bar, sentence


def progress(received_bytes: int) -> Progress:
    return Progress(name="tiny", received_bytes=received_bytes, total_bytes=100_000_000)


def test_bar_shows_share_and_total() -> None:
    assert bar(progress(50_000_000)) == f"tiny [{'#' * 15}{' ' * 15}]  50 % of 100.0 MB"
    assert bar(progress(100_000_000)) == f"tiny [{'#' * 30}] 100 % of 100.0 MB"


def test_bar_redraws_its_line_and_leaves_it_before_other_text() -> None:
    out = io.StringIO()
    show = TerminalBar(out)

    for event in (progress(0), progress(100_000_000), Done(name="tiny", path=Path("/c/t.gguf"))):
        show(event)

    assert out.getvalue() == (
        f"\r{bar(progress(0))}\r{bar(progress(100_000_000))}\nin the cache: /c/t.gguf\n"
    )


def test_plain_lines_are_few_and_only_when_bytes_moved() -> None:
    out = io.StringIO()
    seconds = iter([0.0, 1.0, 6.0, 12.0])
    show = PlainLines(out, clock=lambda: next(seconds))

    for received_bytes in (0, 10_000_000, 20_000_000, 20_000_000):
        show(progress(received_bytes))

    assert out.getvalue().splitlines() == [
        "fetching `tiny`: 0.0 MB of 100.0 MB",
        "fetching `tiny`: 20.0 MB of 100.0 MB",
    ]


def test_waiting_is_said_at_once() -> None:
    out = io.StringIO()

    PlainLines(out)(Waiting(name="tiny"))

    assert out.getvalue() == "waiting: another process fetches `tiny`\n"


def test_failure_stands_apart_from_its_hint() -> None:
    assert sentence(Failed(message="no", hint="go")) == "error: no\n\nhint: go"


def test_json_lines_end_with_a_newline_each() -> None:
    out = io.StringIO()
    show = JsonLines(out)

    show(Waiting(name="tiny"))
    show(progress(1))

    assert [line[:10] for line in out.getvalue().splitlines()] == ['{"event": ', '{"event": ']
