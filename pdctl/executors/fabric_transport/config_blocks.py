"""The `Host` blocks of SSH configuration files; those of one host are found without trying all.

For files without `Match`, `Include` and canonical names: for those, `ssh` itself has to be asked. A file may
have a block for each of a thousand hosts; paramiko's reader tries every block for every host, and looks up
the operator's name each time: a second of work for 256 hosts.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.executors.ssh_faults import bad_settings
from pdctl.executors.ssh_login import Options
from pdctl.executors.ssh_patterns import SIGNS, is_meant

_SETTING = re.compile(r"(\w+)(?:\s*=\s*|\s+)(.+)")
_EVERY_HOST = ("*",)
_OTHER_WAY = {"proxyjump": "proxycommand", "proxycommand": "proxyjump"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    patterns: tuple[str, ...]
    settings: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])  # in the file's order


class ConfigBlocks:
    """All blocks in their order, by which the first value of an option counts. Never changed."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        """`texts` are the files' contents by path. A line that is no setting raises `UnreachableError`."""
        self._blocks = [block for path, text in texts.items() for block in _parse(path, text)]
        self._exact: dict[str, list[int]] = {}  # places of blocks by a name that they are for
        self._patterns: list[int] = []  # places of the others
        for place, block in enumerate(self._blocks):
            if all(SIGNS.isdisjoint(name) for name in block.patterns):
                for name in dict.fromkeys(block.patterns):
                    self._exact.setdefault(name, []).append(place)
            else:
                self._patterns.append(place)

    def options(self, host: str) -> Options:
        """What the files say of a host, as `ssh -G` would print it, save tokens in paths and commands."""
        found: dict[str, tuple[str, ...]] = {}
        matching = (place for place in self._patterns if is_meant(host, self._blocks[place].patterns))
        for place in sorted((*self._exact.get(host, ()), *matching)):
            for name, value in self._blocks[place].settings:
                _add(found, name, value)
        if (hostname := found.get("hostname")) is not None:
            found["hostname"] = (hostname[0].replace("%h", host).replace("%%", "%"),)
        return found


def _add(found: dict[str, tuple[str, ...]], name: str, value: str) -> None:
    if name == "identityfile":  # all of them are tried
        found[name] = tuple(dict.fromkeys((*found.get(name, ()), value)))
    elif name not in found and _OTHER_WAY.get(name) not in found:
        found[name] = (value,)


def _parse(path: str, text: str) -> list[_Block]:
    """What stands before the first `Host` is for every host, and ends with its file."""
    blocks = [_Block(patterns=_EVERY_HOST)]
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith("#"):
            continue
        found = _SETTING.fullmatch(line)
        if found is None:
            raise bad_settings(f"line {number} of `{path}` is no setting")
        name, value = found[1].lower(), found[2]
        if name == "host":
            blocks.append(_Block(patterns=_words(value, path, number)))
        else:
            blocks[-1].settings.append((name, _unquoted(value)))
    return blocks


def _words(value: str, path: str, number: int) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(value))
    except ValueError as error:
        raise bad_settings(f"line {number} of `{path}` has a quote without an end") from error


def _unquoted(value: str) -> str:
    is_quoted = len(value) > 1 and value.startswith('"') and value.endswith('"')
    return value[1:-1] if is_quoted else value
