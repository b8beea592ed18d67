from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.reconcile.model import Change, ChangeSet, FieldChange, Op
from pdctl.views.canvas import Canvas
from pdctl.views.changes import changes_lines, changes_summary, changes_value
from pdctl.views.machine import to_json

Golden = Callable[[str, str], None]

PAGE_SIZE = FieldChange(name="--page-size", before="16", after="32")
CHANGES = ChangeSet(
    changes=(
        Change(op=Op.STOP, process_id="decode-1.0", node="localhost", cause="no longer in the plan"),
        Change(
            op=Op.REPLACE,
            process_id="prefill-0.0",
            node="localhost",
            cause="`--page-size` 16 -> 32",
            fields=(PAGE_SIZE,),
        ),
        Change(
            op=Op.REPLACE,
            process_id="prefill-1.0",
            node="localhost",
            cause="moves from `h1` to `localhost`",
            fields=(
                PAGE_SIZE,
                FieldChange(name="--verify-kv", before=None, after=""),
                FieldChange(name="OMP_NUM_THREADS", before="2", after=None),
            ),
        ),
        Change(op=Op.CREATE, process_id="decode-0.0", node="localhost", cause="not running"),
        Change(op=Op.KEEP, process_id="router-0.0", node="localhost", cause="runs as planned"),
    )
)


@pytest.mark.parametrize("width", [None, 40])
def test_the_screen_of_changes(golden: Golden, width: int | None) -> None:
    lines = changes_lines("laptop-1p1d", CHANGES, Canvas(width=width))
    golden(f"screens/diff-{width or 'pipe'}.txt", "\n".join(lines) + "\n")


def test_the_json_of_changes(golden: Golden) -> None:
    golden("screens/diff.json", to_json(changes_value("laptop-1p1d", CHANGES)) + "\n")


def test_the_sign_tells_the_operation_without_colour() -> None:
    lines = list(changes_lines("x", CHANGES, Canvas()))
    assert [line[0] for line in lines if line.startswith(("+", "~", "-", "="))] == ["-", "~", "~", "+", "="]


def test_what_is_kept_alone_is_nothing_to_do() -> None:
    kept = ChangeSet(changes=CHANGES.of(Op.KEEP))
    assert changes_summary(kept) == "nothing to do, 1 to keep"
    assert changes_summary(kept, is_done=True) == "nothing to do, 1 kept"


def test_a_done_change_set_is_told_in_the_past() -> None:
    assert changes_summary(CHANGES, is_done=True) == "1 created, 2 replaced, 1 stopped, 1 kept"


def test_an_empty_change_set_has_a_summary_of_its_own() -> None:
    assert list(changes_lines("x", ChangeSet(changes=()), Canvas())) == ["x: nothing runs and nothing should"]
