"""The line is given to real shells, the way sshd gives it: `SHELL -c LINE`."""

from __future__ import annotations

import os
import shutil
import string
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pdctl.executors.link import NodeLink
from pdctl.executors.remote_command import (
    MAX_LINE_BYTES,
    new_marker,
    put_command,
    remote_command,
    strip_noise,
)

MARKER = "pdctl-0123"
# What Debian has; `.ci/run` installs those that a machine may lack.
LOGIN_SHELLS = [name for name in ("sh", "bash", "dash", "zsh", "tcsh", "csh", "fish") if shutil.which(name)]
# What /bin/sh may be.
STANDARD_SHELLS = [
    *(name for name in ("dash", "bash", "zsh", "ksh") if shutil.which(name)),
    *(["busybox sh"] if shutil.which("busybox") else []),
]
WORDS = (
    "",
    " ",
    "two words",
    "it's",
    'say "so"',
    "!!",
    "!$ !-1 !{x}",
    "\\",
    "\\\\n",
    "\\'",
    "ends in a newline\n",
    "\n\n",
    "tab\tand\rreturn\x1b[31m\x7f",
    "$HOME ${HOME} $(id) `id` $0 $$",
    "*? [a-z]* {a,b} ~ ~root",
    "a;b & c | d > /dev/null < e",
    "# no comment",
    "=ls %self ^a^b @x",
    "-n",
    "%s %b \\0101 \\c cut",
    "ünïcode 节点 🙂",
    "\udcff\udcfe",  # bytes that are no UTF-8, as Python holds file names
    "x" * 2000,
    string.punctuation,
)


def _run(
    line: str, shell: Sequence[str], stdin: bytes = b"", **env: str
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*shell, "-c", line],
        input=stdin,
        capture_output=True,
        timeout=20,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", **env},
    )


def _printed(argv: Sequence[str], shell: Sequence[str], **env: str) -> bytes:
    done = _run(remote_command(argv, MARKER), shell, **env)
    assert done.returncode == 0, done.stderr
    assert strip_noise(done.stderr, MARKER) == b""
    own = strip_noise(done.stdout, MARKER)
    assert own is not None
    return own


@pytest.fixture(scope="session")
def argv_printer(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A program that prints its arguments, each ended by NUL."""
    script = tmp_path_factory.mktemp("printer") / "argv.sh"
    script.write_text('for word in "$@"; do printf \'%s\\000\' "$word"; done\n')
    return ["/bin/sh", str(script)]


def _bytes(words: Sequence[str]) -> bytes:
    return b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_every_login_shell_passes_every_word_as_it_is(shell: str, locale: str, argv_printer: list[str]):
    assert _printed([*argv_printer, *WORDS], [shell], LC_ALL=locale) == _bytes(WORDS)


@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_words_that_shells_agree_about_pass_without_an_encoding(shell: str, argv_printer: list[str]):
    words = [word for word in WORDS if word.isascii() and word.isprintable() and not set(word) & set("!'\\")]
    assert {"", "two words", "$HOME ${HOME} $(id) `id` $0 $$", "=ls %self ^a^b @x"} <= set(words)
    assert "printf" not in remote_command([*argv_printer, *words], MARKER)
    assert _printed([*argv_printer, *words], [shell]) == _bytes(words)


def test_a_call_of_the_shim_needs_no_encoding(make_shell):
    """Which would be a process more on the node, for each call."""
    shell = make_shell(answers=[[]])
    NodeLink(name="n1", shell=shell, python="python3").call("status", [".", "demo"])
    ((argv, _request),) = shell.calls
    assert "printf %b" not in remote_command(argv, MARKER)


@pytest.mark.parametrize("standard", STANDARD_SHELLS)
def test_whatever_bin_sh_is_reads_the_octal_form(standard: str, argv_printer: list[str], tmp_path: Path):
    line = remote_command([*argv_printer, *WORDS], MARKER)
    stand_in = tmp_path / "sh"
    stand_in.write_text(f'#!/bin/sh\nexec {standard} "$@"\n')
    stand_in.chmod(0o755)
    done = _run(line.replace("/bin/sh", str(stand_in), 1), ["sh"])
    assert (done.returncode, strip_noise(done.stdout, MARKER)) == (0, _bytes(WORDS))


@settings(max_examples=30, deadline=None)
@given(
    words=st.lists(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",))), max_size=5)
)
@pytest.mark.parametrize("shell", LOGIN_SHELLS[-1:])
def test_any_text_passes(shell: str, argv_printer: list[str], words: list[str]):
    assert _printed([*argv_printer, *words], [shell]) == _bytes(words)


@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_standard_input_reaches_the_command_unread(shell: str):
    stdin = bytes(range(256)) * 300
    done = _run(remote_command(["cat"], MARKER), [shell], stdin)
    assert strip_noise(done.stdout, MARKER) == stdin


@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_exit_codes_are_the_commands_own(shell: str):
    codes = [
        _run(remote_command(argv, MARKER), [shell]).returncode
        for argv in (["true"], ["sh", "-c", "exit 7"], ["sh", "-c", "exit 255"], ["no such program"], ["/"])
    ]
    assert codes == [0, 7, 255, 127, 126]


@pytest.mark.parametrize("shell", LOGIN_SHELLS)
def test_no_shell_is_left_between_the_server_and_the_command(shell: str):
    """A signal, and the end of the connection, must reach the command itself."""
    line = remote_command(["sh", "-c", "kill -TERM $$"], MARKER)
    assert _run(line, [shell]).returncode == -15


def test_a_file_whose_sender_has_vanished_is_given_up_and_leaves_nothing(tmp_path: Path):
    argv = put_command(f"{tmp_path}/new/file", 5, "token", limit_s=0.2)
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as command:
        assert command.stdin is not None
        command.stdin.write(b"half")
        command.stdin.flush()  # and no end
        assert command.wait(20) == 1
    assert list(tmp_path.iterdir()) == []


def test_what_a_profile_prints_is_cut_off_and_output_that_looks_like_it_is_not():
    noisy = b"Welcome!\nyou have mail"
    own = b"\n\nWelcome!\n"
    assert strip_noise(noisy + b"\n%b\n" % MARKER.encode() + own, MARKER) == own
    assert strip_noise(noisy, MARKER) is None
    # `set -x` in a profile shows the line, with the marker inside a word.
    assert strip_noise(b"+ exec /bin/sh -c ... " + MARKER.encode() + b"\n", MARKER) is None


def test_a_noisy_profile_of_a_real_shell_is_cut_off(tmp_path: Path):
    profile = tmp_path / "profile"
    profile.write_text("echo hello; echo oops >&2; set -xv; printf unfinished; printf unfinished >&2\n")
    done = _run(
        remote_command(["sh", "-c", "echo out; echo err >&2"], MARKER), ["bash"], BASH_ENV=str(profile)
    )
    assert b"hello" in done.stdout
    assert b"exec /bin/sh" in done.stderr
    assert strip_noise(done.stdout, MARKER) == b"out\n"
    # /bin/sh reads no profile, so nothing else speaks after the marker.
    assert strip_noise(done.stderr, MARKER) == b"err\n"


@pytest.mark.parametrize("argv", [[], ["a\0b"], ["x" * MAX_LINE_BYTES]])
def test_what_can_be_no_command_is_refused(argv: list[str]):
    with pytest.raises(ValueError):  # noqa: PT011 - each says its own
        remote_command(argv, MARKER)


def test_a_marker_that_a_shell_could_read_is_refused():
    with pytest.raises(ValueError, match="no marker"):
        remote_command(["true"], "a b")


def test_the_line_is_plain_text_for_people_who_look_at_process_lists():
    line = remote_command(["/opt/a b/python", "-c", "print('!')"], new_marker())
    assert line.isascii()
    assert not set(line) & set("!\n\t`")
