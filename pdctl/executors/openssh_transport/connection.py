"""One connection to one machine, held open by an `ssh` in the background, shared by all calls.

It ends by itself, a while after its last use or when the machine doesn't answer, so that neither a killed
pdctl leaves it behind nor a dead machine lets calls hang.
"""

from __future__ import annotations

import contextlib
import random
import secrets
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pdctl.executors.known_hosts import KnownHosts
from pdctl.executors.openssh_transport.faults import fault_of, is_hung_up, last_line, needs_closer_look
from pdctl.executors.openssh_transport.settings import command_argv, connect_argv, look_argv, ssh_argv
from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_faults import bad_settings, key_locked, key_unusable, too_slow
from pdctl.executors.ssh_login import Asked, Login, Operator, Options, login_of
from pdctl.topology.model import Ssh

FAILED = 255  # the code with which `ssh` says that it has failed itself
# A server above its `MaxStartups` hangs up on newcomers; in a moment there is room again.
_PAUSES_S = (0.15, 0.3, 0.6, 1.2)
_STEPS = 3  # of connecting, each of which has the topology's limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Paths of configurations for `ssh`."""

    usual: str
    for_a_look: str  # at why something fails


class NodeConnection:
    """May be used from several threads at a time. `folder`, where its socket lies, is the user's alone."""

    def __init__(
        self,
        asked: Asked,
        ssh: Ssh,
        *,
        folder: Path,
        settings: Settings,
        operator: Operator,
        environ: Mapping[str, str],
    ) -> None:
        self._asked = asked
        self._ssh = ssh
        self._operator = operator
        self._environ = dict(environ)
        self._socket = str(folder / secrets.token_hex(8))
        self._argv = ssh_argv(asked, settings.usual, self._socket)
        self._look_argv = look_argv(asked, settings.for_a_look, self._socket, ssh.connect_timeout_s)
        self._opening = threading.Lock()

    def open(self) -> None:
        """Log in unless that is done. Raises `UnreachableError` with why it can't be done."""
        with self._opening:
            if self._is_open():
                return
            self._require_files()
            for pause_s in (*_PAUSES_S, None):
                code, said = self._connect(self._argv)
                if code != FAILED:
                    return
                login = self.login()
                if needs_closer_look(said, login):
                    code, said = self._connect(self._look_argv)
                    if code != FAILED:
                        return
                fault = self._fault(said, login)
                if pause_s is None or not is_hung_up(fault, login):
                    raise fault
                time.sleep(pause_s * random.uniform(0.5, 1.5))

    def command(self, line: str) -> subprocess.Popen[bytes]:
        """Start `ssh` for one command. In a session of its own: a Ctrl-C is meant for pdctl alone."""
        return subprocess.Popen(
            command_argv(self._argv, self._asked.host, line),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environ,
            start_new_session=True,
        )

    def fault(self, said: str) -> UnreachableError:
        """Why `ssh` failed, from what it said."""
        try:
            return self._fault(said, self.login())
        except UnreachableError as error:
            return error

    def login(self) -> Login:
        """What `ssh` makes of all that it is told. Raises `UnreachableError` when that is nothing."""
        done = subprocess.run(
            [*self._argv, "-G", "--", self._asked.host],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environ,
            timeout=self._limit_s,
            check=False,
        )
        if done.returncode != 0:
            raise bad_settings(last_line(done.stderr.decode("utf-8", "replace")))
        login = login_of(self._asked, _options(done.stdout.decode("utf-8", "replace")), self._operator)
        # `ssh` still looks for files under a second name of old; they needn't be told of.
        files = tuple(path for path in login.known_hosts if path[-1] != "2" or Path(path).is_file())
        return replace(login, known_hosts=files)

    def close(self) -> None:
        """End the connection now, for all calls that use it."""
        if self._is_open():
            argv = [*self._argv, "-O", "exit", "--", self._asked.host]
            subprocess.run(
                argv, stdin=subprocess.DEVNULL, capture_output=True, env=self._environ, check=False
            )

    def _fault(self, said: str, login: Login) -> UnreachableError:
        fault = fault_of(said, login, _known(login), connect_timeout_s=self._ssh.connect_timeout_s)
        if fault.code == "PD520" and login.stated_identity and _is_locked(login.stated_identity):
            return key_locked(login.stated_identity)  # `ssh` passes over it in silence
        return fault

    def _require_files(self) -> None:
        """`ssh` passes over files that aren't there, and would go on with less than the topology says."""
        config, key = self._ssh.config, self._asked.identity_file
        if config is not None and _is_missing(config, self._operator.home):
            raise bad_settings(f"there is no file `{config}`")
        if key is not None and _is_missing(key, self._operator.home):
            raise key_unusable(key, "there is no such file")

    @property
    def _limit_s(self) -> float:
        return _STEPS * self._ssh.connect_timeout_s

    def _is_open(self) -> bool:
        """A connection that is gone has no socket, or one that nobody listens at."""
        with socket.socket(socket.AF_UNIX) as peer:
            try:
                peer.connect(self._socket)
            except OSError:
                return False
        return True

    def _connect(self, ssh: Sequence[str]) -> tuple[int, str]:
        """Code and words of `ssh`; into a file, for the one in the background may keep its end of a pipe."""
        argv = connect_argv(ssh, self._asked.host)
        with tempfile.TemporaryFile() as said:
            with subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=said,
                env=self._environ,
                start_new_session=True,
            ) as child:
                try:
                    code = child.wait(self._limit_s)
                except subprocess.TimeoutExpired as error:
                    child.kill()
                    raise too_slow(self._limit_s) from error
            said.seek(0)
            return code, said.read().decode("utf-8", "replace")


def _options(text: str) -> Options:
    """Lines of `ssh -G`: a name, a space, a value."""
    options: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        options[name] = (*options.get(name, ()), value)
    return options


def _known(login: Login) -> KnownHosts:
    texts = dict.fromkeys(login.known_hosts, "")
    for path in texts:
        with contextlib.suppress(OSError):
            texts[path] = Path(path).read_text(encoding="utf-8", errors="replace")
    return KnownHosts.parse(texts.values(), files=tuple(texts))


def _is_missing(path: str, home: str) -> bool:
    """What `%` stands for in a path only `ssh` knows."""
    return "%" not in path and not Path(home + path[1:] if path.startswith("~/") else path).is_file()


def _is_locked(key: str) -> bool:
    """Whether it has a passphrase: an empty one doesn't open it."""
    argv = ["ssh-keygen", "-y", "-P", "", "-f", key]
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except FileNotFoundError:
        return False
    return b"passphrase" in done.stderr
