"""Files of host keys, as OpenSSH writes them (sshd(8), "SSH_KNOWN_HOSTS FILE FORMAT"). Pure.

Ours because paramiko's reader knows neither patterns nor revoked keys. Certificate authorities are left out:
no transport of ours checks certificates of hosts but the `ssh` program itself.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pdctl.executors.ssh_patterns import SIGNS, is_meant

_HASHED = "|1|"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostKey:
    type: str  # `ssh-ed25519`, …
    blob: bytes  # the public key as the protocol sends it

    @property
    def fingerprint(self) -> str:
        """As `ssh` and `ssh-keygen -l` show it."""
        digest = hashlib.sha256(self.blob).digest()
        return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


@dataclass(slots=True)
class KnownHosts:
    """Keys by the name of their host."""

    _exact: dict[str, list[HostKey]] = field(default_factory=dict[str, list[HostKey]])
    _patterns: list[tuple[str, HostKey]] = field(default_factory=list[tuple[str, HostKey]])
    _revoked: set[bytes] = field(default_factory=set[bytes])
    _files: dict[str, str] = field(default_factory=dict[str, str])

    @classmethod
    def parse(cls, texts: Iterable[str], *, files: Sequence[str] = ()) -> KnownHosts:
        """Read texts, and know which of `files` each is; lines that are no entries are passed over, as `ssh`
        does.
        """
        known = cls()
        for index, text in enumerate(texts):
            for line in text.splitlines():
                known._add(line.split())
            if index < len(files):
                known._files[files[index]] = text
        return known

    def files_of(self, name: str) -> tuple[str, ...]:
        """Those that have a key of this host."""
        return tuple(file for file, text in self._files.items() if KnownHosts.parse([text]).keys_of(name))

    def keys_of(self, name: str) -> tuple[HostKey, ...]:
        """`name` as in the file: lower case, `[name]:port` unless the port is 22."""
        by_pattern = (key for names, key in self._patterns if _is_meant(name, names))
        return tuple(dict.fromkeys((*self._exact.get(name, ()), *by_pattern)))

    def is_revoked(self, key: HostKey) -> bool:
        return key.blob in self._revoked

    def _add(self, words: list[str]) -> None:
        marker = words.pop(0) if words and words[0].startswith("@") else None
        if len(words) < 3 or words[0].startswith("#"):
            return
        names, key_type, encoded = words[:3]
        try:
            key = HostKey(type=key_type, blob=base64.b64decode(encoded, validate=True))
        except binascii.Error:
            return
        if marker == "@revoked":
            self._revoked.add(key.blob)
        elif marker is None and (names.startswith(_HASHED) or not SIGNS.isdisjoint(names)):
            self._patterns.append((names, key))
        elif marker is None:
            for name in names.split(","):
                self._exact.setdefault(name.lower(), []).append(key)


def _is_meant(name: str, names: str) -> bool:
    if names.startswith(_HASHED):
        return _is_hash_of(name, names)
    return is_meant(name, names.lower().split(","))


def _is_hash_of(name: str, entry: str) -> bool:
    """`|1|salt|HMAC-SHA1 of the name|`, so that the file doesn't tell where its owner goes."""
    parts = entry.removeprefix(_HASHED).split("|")
    try:
        salt, wanted = (base64.b64decode(part, validate=True) for part in parts[:2])
    except (binascii.Error, ValueError):
        return False
    return hmac.compare_digest(hmac.digest(salt, name.encode(), "sha1"), wanted)
