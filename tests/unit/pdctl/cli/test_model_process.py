"""The runtime seen from pdctl: a program that prints JSON. Here it's a few lines of our own."""

from __future__ import annotations

import sys

import pytest

from pdctl.cli.model_process import known_models, pull_model
from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.events import Event, Preparing
from pdctl.views.models import KnownModel


class Recorded:
    """An `EventSink` that keeps what it's told."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def on(self, *events: Event) -> None:
        self.events.extend(events)


def program(script: str) -> tuple[str, ...]:
    return (sys.executable, "-S", "-c", script)


def fault(script: str) -> Diagnostic:
    with pytest.raises(DiagnosticError) as caught:
        pull_model("tiny", Recorded(), program(script))
    return caught.value.diagnostics[0]


def test_progress_becomes_events_and_the_end_the_path() -> None:
    sink = Recorded()
    script = """print('not JSON')
print('{"event": "waiting", "name": "tiny"}')
print('{"event": "progress", "name": "tiny", "received_bytes": 5, "total_bytes": 10}')
print('{"event": "news", "of": "a later version"}')
print('{"event": "progress", "received_bytes": "many"}')
print('{"event": "done", "name": "tiny", "path": "/cache/tiny.gguf"}')"""
    assert pull_model("tiny", sink, program(script)) == "/cache/tiny.gguf"
    assert sink.events == [
        Preparing(node="localhost", text="another process fetches tiny"),
        Preparing(node="localhost", text="fetching tiny", received_bytes=5, total_bytes=10),
    ]


def test_an_error_is_told_in_the_runtimes_own_words() -> None:
    told = fault(
        'print(\'{"event": "error", "message": "no network", "hint": "copy it"}\'); raise SystemExit(1)'
    )
    assert (told.code, told.message, told.help) == ("PD604", "no network", "copy it")


def test_a_runtime_that_dies_wordless_is_told_with_its_last_lines() -> None:
    told = fault("raise SystemExit('out of luck')")
    assert told.message == "`tiny` could not be fetched"
    assert told.notes == ("the runtime ended with 1",)
    assert told.excerpts[0].lines == ("out of luck",)


def test_much_output_on_stderr_does_not_block_the_fetch() -> None:
    script = """import sys
sys.stderr.write('x' * 1_000_000 + '\\\\n')
print('{"event": "done", "name": "tiny", "path": "/p"}')"""
    assert pull_model("tiny", Recorded(), program(script)) == "/p"


def test_models_are_read_from_a_list() -> None:
    row = {"name": "tiny", "size_bytes": 1, "licence": "MIT", "cached": True, "path": "/p", "more": 1}
    script = f"import json; print(json.dumps([{row}]))"
    assert known_models(program(script)) == (
        KnownModel(name="tiny", size_bytes=1, licence="MIT", is_cached=True, path="/p"),
    )


@pytest.mark.parametrize(
    "script", ["print('no JSON')", "print('{}')", "print('[{}]')", "print('[1]')", "raise SystemExit(3)"]
)
def test_a_list_that_cannot_be_read_is_a_diagnostic(script: str) -> None:
    with pytest.raises(DiagnosticError, match="models could not be listed"):
        known_models(program(script))
