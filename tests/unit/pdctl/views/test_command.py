from __future__ import annotations

import json
import subprocess
import sys

from hypothesis import example, given, settings
from hypothesis import strategies as st

from pdctl.views.canvas import Canvas
from pdctl.views.command import command_lines, quoted

PRINT_ARGV = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ.get('PDCTL_TEST')]))"


def test_a_short_command_stays_on_one_line() -> None:
    assert list(command_lines(["python", "-m", "x", "--port", "1"], {}, Canvas())) == ["python -m x --port 1"]


def test_a_long_command_has_a_flag_and_its_values_a_line() -> None:
    argv = ["python", "-m", "engine", "--model-path", "m" * 70, "--on", "--ports", "1", "2"]
    assert list(command_lines(argv, {"B": "2", "A": "1 1"}, Canvas(), indent="  ")) == [
        "  env A='1 1' \\",
        "      B=2 \\",
        "      python -m engine \\",
        f"      --model-path {'m' * 70} \\",
        "      --on \\",
        "      --ports 1 2",
    ]


@settings(max_examples=25, deadline=None)
@given(
    words=st.lists(
        st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"])), max_size=5
    ),
    value=st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30),
)
@example(words=["--a", "it's\n$HOME", "\x1b[2J\\", "`id`"], value="'\t\\x41")
@example(words=["--" + "x" * 90], value="")
def test_a_pasted_command_runs_with_the_same_words(words: list[str], value: str) -> None:
    argv = [sys.executable, "-S", "-c", PRINT_ARGV, *words]
    script = "\n".join(command_lines(argv, {"PDCTL_TEST": value}, Canvas()))
    ran = subprocess.run(
        ["bash", "-c", script], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}, text=True
    )
    assert json.loads(ran.stdout) == [words, value]


def test_a_quoted_word_has_no_control_characters() -> None:
    assert quoted("a\x1b\nb") == "$'a\\x1b\\x0ab'"
