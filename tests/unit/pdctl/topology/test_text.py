"""From bytes to text: bounds, encodings, places."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.topology.text import MAX_DOCUMENT_BYTES, SourceText, decode_source, read_source


def refusal(path: Path | str) -> str:
    with pytest.raises(DiagnosticError) as caught:
        read_source(str(path))
    return "; ".join(f"{each.code} {each.message}" for each in caught.value.diagnostics)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.yaml") == f"PD101 no file `{tmp_path}/none.yaml`"


def test_a_directory_is_no_topology(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"PD101 `{tmp_path}` is a directory"


def test_a_path_through_a_file_says_what_the_system_says(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert refusal(tmp_path / "file" / "x.yaml").endswith(": not a directory")


def test_a_path_with_a_nul_is_refused() -> None:
    assert refusal("a\0b").startswith("PD101 cannot read")


def test_a_read_that_fails_says_what_the_system_says() -> None:
    # Address 0 of this very process: opens for everybody, reads for nobody, not even root.
    assert refusal("/proc/self/mem") == "PD101 cannot read `/proc/self/mem`: input/output error"


def test_five_megabytes_are_refused_before_parsing(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_bytes(b"[" * 5_000_000)  # parsing it would say something about brackets
    assert refusal(path) == f"PD102 `{path}` is larger than {MAX_DOCUMENT_BYTES:,} bytes"


def test_an_endless_input_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.BytesIO(b"#" * (2 * MAX_DOCUMENT_BYTES))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stream))
    assert refusal("-").startswith("PD102 `<stdin>` is larger")
    assert stream.tell() == MAX_DOCUMENT_BYTES + 1


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"name: demo\n")))
    assert read_source("-") == SourceText(file="<stdin>", text="name: demo\n")


def test_bytes_that_are_not_utf8_are_placed_on_their_line() -> None:
    with pytest.raises(DiagnosticError) as caught:
        decode_source(b"name: demo\nx-note: caf\xe9\n", "f.yaml")
    (fault,) = caught.value.diagnostics
    assert fault.span is not None
    assert (fault.code, fault.span.line, fault.span.column) == ("PD103", 2, 12)
    assert fault.message == "byte 0xe9 at offset 22 is not UTF-8"


def test_utf16_is_recognised() -> None:
    with pytest.raises(DiagnosticError) as caught:
        decode_source("name: demo".encode("utf-16"), "f.yaml")
    assert caught.value.diagnostics[0].help == "the file begins like UTF-16: save it as UTF-8"


def test_control_characters_are_reported_once_per_line() -> None:
    with pytest.raises(DiagnosticError) as caught:
        decode_source(b"a: \x00\x01\nb: 1\nc: \x1b\n", "f.yaml")
    places = [(each.span.line, each.span.column) for each in caught.value.diagnostics if each.span]
    assert places == [(1, 4), (3, 4)]
    assert caught.value.diagnostics[0].message == "a NUL character in the text"


def test_a_binary_file_gives_ten_reports_at_most() -> None:
    with pytest.raises(DiagnosticError) as caught:
        decode_source(b"\x01\n" * 1000, "f.yaml")
    assert len(caught.value.diagnostics) == 10


def test_a_byte_order_mark_is_not_text() -> None:
    assert decode_source(b"\xef\xbb\xbfname: demo", "f.yaml").text == "name: demo"


def test_windows_line_ends_are_not_part_of_a_line() -> None:
    assert decode_source(b"a: 1\r\nb: 2\r\n", "f.yaml").lines == ("a: 1", "b: 2", "")


def test_a_span_over_lines_marks_the_first() -> None:
    span = SourceText(file="f", text="a: |\n  x\n  y\n").span(0, 3, 3, 0)
    assert (span.line, span.column, span.length, span.text) == (1, 4, 1, "a: |")
