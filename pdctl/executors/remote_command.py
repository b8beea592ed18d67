"""One command line that means the same in every login shell, and its output without the shell's noise.

sshd hands the line to the login shell of the account, whatever that is. Shells agree on little: csh expands
`!` inside single quotes and can't hold a newline there, fish reads backslashes there, zsh and tcsh expand a
leading `=`. So the login shell sees nothing but one fixed program, and words in single quotes that hold none
of this; it turns into /bin/sh at once. Where a word does, it sees only letters, digits, a few harmless signs
and `\\\\` behind the program: the rest is octal, which /bin/sh alone reads, for one more process.
"""

from __future__ import annotations

import re
import secrets
import shlex
from collections.abc import Sequence

from pdctl.executors.shell import Completed

PUT_TIMEOUT_S = 60.0
MAX_LINE_BYTES = 128 * 1024 - 1  # what Linux takes as one argument: sshd starts `SHELL -c LINE`

_SAFE_BYTES = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./,:+-")
_SAFE_WORD = re.compile(r"[A-Za-z0-9_./,:+-]+")
_MARKER = re.compile(r"[A-Za-z0-9_-]+")
# No quote, backslash, `!` or newline inside single quotes: they are what shells disagree about.
_QUOTABLE = re.compile(r"[ \"-&(-\[\]-~]*")
_RUN = """exec /bin/sh -c '{shown}exec "$@"' sh {words}"""
_DECODE_AND_RUN = """exec /bin/sh -c 'eval "$(printf %b "$1")"' sh {script}"""


def new_marker() -> str:
    """A word that no profile prints. One for each call, so that output can't imitate it."""
    return f"pdctl-{secrets.token_hex(8)}"


def remote_command(argv: Sequence[str], marker: str) -> str:
    """ASCII. Prints the marker on stdout and stderr, then becomes the command, with argv as it is.

    A program that is missing ends with code 127, one that may not be executed with 126, as in a shell.
    `ValueError` when argv is empty, holds NUL, or makes a line that is longer than Linux allows.
    """
    if not argv or any("\0" in word for word in argv):
        raise ValueError("a command needs a program and can't hold NUL")
    if not _MARKER.fullmatch(marker):
        raise ValueError(f"`{marker!r}` is no marker")
    # The line break before it ends whatever a profile printed without one.
    shown = f"echo; echo {marker}; {{ echo; echo {marker}; }} >&2; "
    words = [_quoted(word) for word in argv]
    if None in words:
        script = f"{shown}exec {shlex.join(argv)}"
        line = _DECODE_AND_RUN.format(script=_octal(script.encode("utf-8", "surrogateescape")))
    else:  # without the process that decoding takes
        line = _RUN.format(shown=shown, words=" ".join(filter(None, words)))
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"the command makes a line of {len(line)} bytes, more than {MAX_LINE_BYTES}")
    return line


def strip_noise(output: bytes, marker: str) -> bytes | None:
    """What the command itself wrote. None: it never began, and all of `output` is somebody else's."""
    _noise, found, own = output.partition(b"\n%b\n" % marker.encode())
    return own if found else None


def _quoted(word: str) -> str | None:
    """The word for any shell; None where it holds what shells disagree about."""
    if _SAFE_WORD.fullmatch(word):
        return word
    return f"'{word}'" if _QUOTABLE.fullmatch(word) else None


def _octal(script: bytes) -> str:
    """Each unsafe byte as `\\\\0ooo`: any shell makes that `\\0ooo`, which is for `printf %b`."""
    return "".join(chr(byte) if byte in _SAFE_BYTES else rf"\\0{byte:03o}" for byte in script)


# $1 file, $2 its folder, $3 number of bytes, $4 name of the half-written file. A connection that is cut looks
# like the end of the input: only the right number of bytes may get the name. What fails leaves no folder that
# was not there before. $5 seconds are as long as anybody waits for it: a server may take hours to see that
# its peer has vanished.
_PUT = """\
LC_ALL=C; export LC_ALL; umask 077
limit=; command -v timeout >/dev/null && limit="timeout $5"
num_new=0 folder=$2
while [ -n "$folder" ] && [ ! -d "$folder" ]; do num_new=$((num_new + 1)) folder=${folder%/*}; done
mkdir -p -- "$2" && $limit cat > "$4" && [ "$(wc -c < "$4")" -eq "$3" ] && exec mv -f -- "$4" "$1"
rm -f -- "$4"; folder=$2
while [ $num_new -gt 0 ]; do
  rmdir -- "$folder" 2>/dev/null; num_new=$((num_new - 1)) folder=${folder%/*}
done
exit 1"""


def put_command(path: str, num_bytes: int, token: str, *, limit_s: float = PUT_TIMEOUT_S) -> list[str]:
    """argv that writes its standard input to a file for the user alone, whole or not at all.

    `path` is absolute; `token` makes the name of the half-written file one of its own.
    """
    folder = path.rpartition("/")[0] or "/"
    temporary = f"{path}.{token}.tmp"
    return ["/bin/sh", "-c", _PUT, "put", path, folder, str(num_bytes), temporary, f"{limit_s:g}"]


def put_fault(done: Completed) -> OSError | None:
    """What `put_command` found in its way; None when the file is there."""
    if done.code == 0:
        return None
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    words = lines[0] if lines else f"the file came incomplete, or writing ended with code {done.code}"
    return FileNotFoundError(words) if words.endswith("No such file or directory") else OSError(words)
