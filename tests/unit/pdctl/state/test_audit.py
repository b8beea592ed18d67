from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.state.audit import AuditEntry, append_audit, read_audit


def _entry(at: float, detail: str | None = None) -> AuditEntry:
    return AuditEntry(at=at, who="ü@host", verb="up", outcome="done", detail=detail)


def test_entries_are_read_in_the_order_written(tmp_path):
    path = tmp_path / "deeper" / "audit.jsonl"
    entries = tuple(_entry(float(number), "two\nlines") for number in range(3))
    for entry in entries:
        append_audit(path, entry)
    assert read_audit(path) == entries
    assert path.stat().st_mode & 0o077 == 0


def test_no_log_has_no_entries(tmp_path):
    assert read_audit(tmp_path / "audit.jsonl") == ()


def test_a_cut_off_line_hides_neither_those_before_nor_those_after(tmp_path):
    path = tmp_path / "audit.jsonl"
    append_audit(path, _entry(1.0))
    with path.open("ab") as file:
        file.write(b'{"at": 2.0, "wh')
    append_audit(path, _entry(3.0))
    assert [entry.at for entry in read_audit(path)] == [1.0, 3.0]


def test_many_writers_lose_no_line(tmp_path):
    path = tmp_path / "audit.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: append_audit(path, _entry(float(number))), range(200)))
    assert sorted(entry.at for entry in read_audit(path)) == [float(number) for number in range(200)]


def test_a_log_that_cannot_be_written_is_a_diagnostic(tmp_path):
    with pytest.raises(DiagnosticError, match="PD506: cannot write"):
        append_audit(tmp_path, _entry(1.0))
