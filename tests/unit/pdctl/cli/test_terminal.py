"""What the outside does to us: readers that leave, locales without box characters, bugs."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdctl.cli import crash, exits
from pdctl.cli.app import tell_failure
from pdctl.cli.streams import Forgiving

Pdctl = Callable[..., Any]
PROGRAM = [sys.executable, "-c", "from pdctl.cli import main; main()"]
LAPTOP = "topologies/laptop_1p1d.yaml"


@pytest.mark.parametrize("words", [["list"], ["explain"], ["plan", LAPTOP, "--json"]], ids=" ".join)
def test_a_reader_that_leaves_causes_no_traceback(state: Path, words: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)  # every write fails now
    ran = subprocess.run([*PROGRAM, *words], stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert (ran.returncode, ran.stderr) == (exits.READER_GONE, "")


def test_a_reader_that_leaves_during_help_causes_no_traceback() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    ran = subprocess.run([*PROGRAM, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False, text=True)
    os.close(writer)
    assert ran.stderr == ""


def test_a_full_disk_behind_stdout_is_told(state: Path) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run([*PROGRAM, "list"], stdout=full, stderr=subprocess.PIPE, check=False, text=True)
    assert ran.returncode == 1
    assert ran.stderr == "error: cannot write the result: No space left on device\n"


def test_a_locale_without_box_characters_gets_ascii(state: Path) -> None:
    environ = {**os.environ, "PYTHONIOENCODING": "ascii"}
    ran = subprocess.run(
        [*PROGRAM, "validate", "no/such/日本.yaml"], capture_output=True, check=False, env=environ
    )
    assert ran.returncode == 1
    assert ran.stderr.isascii()
    assert b"\\u65e5" in ran.stderr


def test_forced_colour_colours_a_pipe_and_the_option_wins(
    pdctl: Pdctl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in pdctl("plan", LAPTOP).out
    assert "\x1b[" not in pdctl("--color", "never", "plan", LAPTOP).out


def test_stderr_that_goes_away_stops_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

    stream = Forgiving(Gone())
    assert stream.write("lost") == 4
    stream.flush()


def test_a_bug_is_one_line_and_a_file(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    environ = {"PDCTL_STATE_DIR": str(state)}
    crash.report(ValueError("no such luck\nsecond line"), environ)
    first, second = capsys.readouterr().err.splitlines()
    assert first == "internal error: ValueError: no such luck"
    (saved,) = (state / "crashes").iterdir()
    assert str(saved) in second
    assert "ValueError: no such luck" in saved.read_text()


def test_a_bug_in_a_verb_ends_with_exit_code_1(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tell_failure(ZeroDivisionError("division by zero"), ["plan", "x.yaml"]) == 1
    assert capsys.readouterr().err.startswith("internal error: ZeroDivisionError: division by zero\n")
    assert len(list((state / "crashes").iterdir())) == 1


def test_a_bug_shows_its_traceback_when_asked(state: Path, capsys: pytest.CaptureFixture[str]) -> None:
    crash.report(ValueError("x"), {"PDCTL_STATE_DIR": str(state), "PDCTL_DEBUG": "1"})
    assert "ValueError: x\n" in capsys.readouterr().err


def test_a_bug_without_a_place_for_its_traceback_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("")
    crash.report(ValueError("x"), {"PDCTL_STATE_DIR": str(occupied)})
    assert "could not be saved" in capsys.readouterr().err
