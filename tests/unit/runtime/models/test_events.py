import json
from pathlib import Path

import pytest

from runtime.models.events import Done, Event, Failed, Progress, Waiting, to_json

LINES: list[tuple[Event, dict[str, object]]] = [
    (Waiting(name="tiny"), {"event": "waiting", "name": "tiny"}),
    (
        Progress(name="tiny", received_bytes=5, total_bytes=10),
        {"event": "progress", "name": "tiny", "received_bytes": 5, "total_bytes": 10},
    ),
    (Done(name="tiny", path=Path("/c/t.gguf")), {"event": "done", "name": "tiny", "path": "/c/t.gguf"}),
    (Failed(message="no\nway", hint="go"), {"event": "error", "message": "no\nway", "hint": "go"}),
]


@pytest.mark.parametrize(("event", "fields"), LINES)
def test_each_event_is_one_line_of_json(event: Event, fields: dict[str, object]) -> None:
    line = to_json(event)

    assert "\n" not in line
    assert json.loads(line) == fields
