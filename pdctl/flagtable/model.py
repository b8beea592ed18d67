"""A flag table: what the argument parser of one version of one program accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from pdctl.flagtable.synonyms import RENAMED

ScalarDefault = str | int | float | bool | None
Default = ScalarDefault | tuple[ScalarDefault, ...]
Choice = str | int | float


class ValueType(StrEnum):
    """What a flag makes of one word."""

    TEXT = "text"
    INT = "int"
    FLOAT = "float"
    JSON = "json"
    COUNT = "count"  # an integer, or one with a suffix: 64k, 2Mi
    OPAQUE = "opaque"  # a parser of the program's own: every word is let through


class Unread(StrEnum):
    """What a program decides only when it runs, so that its source doesn't tell."""

    CHOICES = "choices"
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """One flag; names are without leading dashes.

    `nargs` is argparse's: None is one value, 0 none (a switch), "?" at most one, "*" any number, "+" one or
    more.
    """

    name: str
    aliases: tuple[str, ...] = ()
    negation: str | None = None  # the spelling that switches it off: `no-…`
    type: ValueType = ValueType.TEXT
    nargs: int | str | None = None
    choices: tuple[Choice, ...] | None = None
    default: Default = None
    dest: str | None = None  # the setting that it writes, where that isn't its own name
    repeats: bool = False  # each use adds to the one before it
    is_required: bool = False
    is_open: bool = False  # plug-ins of the program may add choices
    is_deprecated: bool = False
    is_refused: bool = False  # known to the parser, which ends the program with a word about it
    successor: str | None = None  # what the program says to use instead, with dashes
    unread: tuple[Unread, ...] = ()

    @property
    def is_switch(self) -> bool:
        return self.nargs == 0

    @property
    def setting(self) -> str:
        """What two flags share when the later one on a command line overrides the other."""
        return self.dest or self.name.replace("-", "_")

    @property
    def spellings(self) -> tuple[str, ...]:
        """Every option string of it, the canonical one first."""
        return (self.name, *self.aliases, *(() if self.negation is None else (self.negation,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagTable:
    """All flags of one version."""

    program: str  # `sglang`, `sglang_router`: the kind that topologies name
    version: str
    flags: tuple[Flag, ...]
    by_spelling: Mapping[str, Flag]
    by_later_name: Mapping[str, Flag]  # what later versions call flags of this one

    @classmethod
    def of(cls, program: str, version: str, flags: Iterable[Flag]) -> FlagTable:
        listed = tuple(flags)
        spelled = {spelling: flag for flag in listed for spelling in flag.spellings}
        renamed = RENAMED.get(program, {})
        later = {new: spelled[old] for new, old in renamed.items() if new not in spelled and old in spelled}
        return cls(program=program, version=version, flags=listed, by_spelling=spelled, by_later_name=later)

    @property
    def label(self) -> str:
        """As diagnostics name it: `sglang 0.5.23`."""
        return f"{self.program} {self.version}"

    def flag(self, name: str) -> Flag | None:
        """The flag that `name` spells out: its name, alias, negation, or its name in later versions."""
        return self.by_spelling.get(name) or self.by_later_name.get(name)

    def abbreviated(self, name: str) -> tuple[str, ...]:
        """The spellings that begin with `name`: argparse takes it for one of them if there is just one."""
        return tuple(spelling for spelling in self.by_spelling if spelling.startswith(name))

    def find(self, name: str) -> Flag | None:
        """The flag that argparse would take `name` for: its exact spelling, else the one that begins so."""
        exact = self.flag(name)
        if exact is not None:
            return exact
        longer = self.abbreviated(name)
        return self.by_spelling[longer[0]] if len(longer) == 1 else None
