"""The operator's own keys, tried in the order in which `ssh` tries them."""

from __future__ import annotations

import base64
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from paramiko import Agent, PKey, SSHException
from paramiko.agent import AgentKey
from paramiko.auth_strategy import AuthSource, AuthStrategy, InMemoryPrivateKey, NoneAuth
from paramiko.config import SSHConfig
from paramiko.pkey import UnknownKeyType
from paramiko.ssh_exception import PasswordRequiredException

from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_faults import key_locked, key_unusable
from pdctl.executors.ssh_login import Login


@dataclass(slots=True)
class KeyFiles:
    """Private keys by path, each read once for all nodes."""

    _read: dict[str, PKey | UnreachableError | None] = field(
        default_factory=dict[str, PKey | UnreachableError | None]
    )
    _reading: threading.Lock = field(default_factory=threading.Lock)

    def key(self, path: str) -> PKey | UnreachableError | None:
        """The key, or why it can't be used; None where there is no such file."""
        with self._reading:
            if path not in self._read:
                self._read[path] = _load(path)
            return self._read[path]


def _load(path: str) -> PKey | UnreachableError | None:
    if not Path(path).is_file():
        return None
    try:
        return PKey.from_path(path)
    except (PasswordRequiredException, TypeError):  # cryptography's word for a missing passphrase
        return key_locked(path)
    except (OSError, ValueError, SSHException, UnknownKeyType, UnsupportedAlgorithm) as error:
        return key_unusable(path, _words(error))


def _words(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it is no private key"


class OperatorKeys(AuthStrategy):
    """One login's attempts. After a failure, `tried` and `unusable` tell what there was to try, and `stated`
    why the key that the topology names was of no use.
    """

    def __init__(self, login: Login, files: KeyFiles) -> None:
        super().__init__(ssh_config=SSHConfig())
        self.tried: list[str] = []
        self.unusable: list[UnreachableError] = []
        self.stated: UnreachableError | None = None
        self._login = login
        self._files = files
        self._agent = Agent() if login.may_use_agent else None

    def close(self) -> None:
        if self._agent is not None:
            self._agent.close()

    def get_sources(self) -> Iterator[AuthSource]:
        held = {key.asbytes(): key for key in self._agent.get_keys()} if self._agent is not None else {}
        for path in self._login.identity_files:
            found = self._files.key(path)
            public = found.asbytes() if isinstance(found, PKey) else _public_blob(path)
            key = held.pop(public, found) if public is not None else found
            if isinstance(key, PKey):
                self.tried.append(path)
                yield InMemoryPrivateKey(self._login.user, key)
            elif path == self._login.stated_identity:
                self.stated = key or key_unusable(path, "there is no such file")
            elif key is not None:
                self.unusable.append(key)
        if not self._login.identities_only:
            for key in held.values():
                self.tried.append(_agent_name(key))
                yield InMemoryPrivateKey(self._login.user, key)
        # Last: servers that know the caller by other means take it, and others say what they would take.
        yield NoneAuth(self._login.user)


def _public_blob(path: str) -> bytes | None:
    """Of a key that is locked, to find it in the agent."""
    try:
        words = Path(f"{path}.pub").read_text(encoding="utf-8", errors="replace").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, IndexError, ValueError):
        return None


def _agent_name(key: AgentKey) -> str:
    return f"{key.comment or key.get_name()} (agent)"
