"""What the operator's SSH configuration says of a host.

`ssh -G` knows it all, at the price of a process per host. Our own reader is enough for files that don't use
what it can't read (`Include`, `Match`, canonical names), and is what is left where there is no `ssh`.
"""

from __future__ import annotations

import glob
import re
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from pdctl.executors.fabric_transport.config_blocks import ConfigBlocks
from pdctl.executors.ssh_faults import bad_settings
from pdctl.executors.ssh_login import Options

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
# ssh(1) tries these where no file is named.
DEFAULT_IDENTITIES = ("~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519")
_ASK_TIMEOUT_S = 20.0  # `Match exec` may run anything
_BEYOND_US = re.compile(
    r"^\s*(match|canonical\w*|ignoreunknown)\b|^\s*include\s*=?\s*(?P<files>.+)", re.I | re.M
)


class SshConfig:
    """`path` is None for the files that `ssh` reads by itself. May be used from several threads."""

    def __init__(self, path: str | None, home: str) -> None:
        self._path = path
        self._home = Path(home)
        self._reading = threading.Lock()
        self._parsed: ConfigBlocks | None = None
        self._is_read = False

    def options(self, host: str, *, user: str | None = None, port: int | None = None) -> Options:
        """All options of one host. Raises `UnreachableError` for a configuration that can't be read."""
        with self._reading:
            if not self._is_read:
                self._parsed = self._parse()
                self._is_read = True
        if self._parsed is not None:
            return {"identityfile": DEFAULT_IDENTITIES, **self._parsed.options(host)}
        return self._asked(host, user, port)

    def _parse(self) -> ConfigBlocks | None:
        """Our own reading of the files, None where `ssh` must be asked."""
        if self._path is not None and not Path(self._path).is_file():
            raise bad_settings(f"there is no file `{self._path}`")
        files = [Path(self._path)] if self._path else [self._home / ".ssh/config", SYSTEM_CONFIG]
        try:
            texts = {
                str(file): file.read_text(encoding="utf-8", errors="replace")
                for file in files
                if file.is_file()
            }
        except OSError as error:
            raise bad_settings(str(error)) from error
        if shutil.which("ssh") and any(self._is_beyond(text) for text in texts.values()):
            return None
        return ConfigBlocks(texts)

    def _is_beyond(self, text: str) -> bool:
        """Whether we would misread it. Debian's own file includes a folder that is empty as a rule."""
        base = self._home / ".ssh" if self._path is None else Path(self._path).parent
        for found in _BEYOND_US.finditer(text):
            patterns: Sequence[str] = (found["files"] or "").split()
            # Absolute patterns are nothing for `Path.glob`.
            if not patterns or any(glob.glob(str(base / Path(each).expanduser())) for each in patterns):  # noqa: PTH207
                return True
        return False

    def _asked(self, host: str, user: str | None, port: int | None) -> Options:
        argv = ["ssh", "-G", *(["-F", self._path] if self._path else [])]
        argv += [*(["-l", user] if user else []), *(["-p", str(port)] if port else []), "--", host]
        try:
            done = subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise bad_settings(f"`ssh -G` gives no answer within {_ASK_TIMEOUT_S:g} s") from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip().splitlines()
            raise bad_settings(said[-1] if said else f"`ssh -G` ended with code {done.returncode}")
        return parse_options(done.stdout.decode("utf-8", "replace"))


def parse_options(text: str) -> Options:
    """Lines of `ssh -G`: a name, a space, a value."""
    options: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        options[name] = (*options.get(name, ()), value)
    return options
