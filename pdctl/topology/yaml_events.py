"""PyYAML's event stream as values of our own. PyYAML is imported with the first text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any


class EventKind(Enum):
    DOCUMENT = auto()
    TABLE = auto()
    ITEMS = auto()
    END = auto()  # of the innermost table or items
    SCALAR = auto()
    ALIAS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class YamlEvent:
    """One step through a text. Lines and columns count from 0, the end is exclusive."""

    kind: EventKind
    line: int
    column: int
    end_line: int
    end_column: int
    value: str = ""  # of a scalar
    anchor: str | None = None  # for an alias, the name that it repeats
    tag: str | None = None
    is_plain: bool = False  # a scalar without quotes or tag


class YamlParseError(Exception):
    """The text is not YAML from this place on. Line and column count from 0."""

    def __init__(self, problem: str, line: int, column: int, opened: tuple[int, int] | None) -> None:
        super().__init__(problem)
        self.problem, self.line, self.column, self.opened = problem, line, column, opened


def parse_events(text: str) -> Iterator[YamlEvent]:
    """The events of a text, as they come; raises `YamlParseError`."""
    import yaml

    # libyaml is ten times as fast, and in every wheel of PyYAML; marks are the same.
    loader: Any = yaml.CSafeLoader if yaml.__with_libyaml__ else yaml.SafeLoader
    kinds: dict[type, EventKind] = {
        yaml.DocumentStartEvent: EventKind.DOCUMENT,
        yaml.MappingStartEvent: EventKind.TABLE,
        yaml.MappingEndEvent: EventKind.END,
        yaml.SequenceStartEvent: EventKind.ITEMS,
        yaml.SequenceEndEvent: EventKind.END,
        yaml.ScalarEvent: EventKind.SCALAR,
        yaml.AliasEvent: EventKind.ALIAS,
    }
    try:
        for event in yaml.parse(text, Loader=loader):
            kind = kinds.get(type(event))
            if kind is not None:
                yield _event(kind, event)
    except yaml.MarkedYAMLError as error:
        mark, context = error.problem_mark, error.context_mark
        line, column = (mark.line, mark.column) if mark is not None else (0, 0)
        opened = (context.line, context.column) if context is not None else None
        raise YamlParseError(error.problem or "", line, column, opened) from error
    except yaml.YAMLError as error:
        raise YamlParseError(str(error), 0, 0, None) from error


def _event(kind: EventKind, event: Any) -> YamlEvent:
    is_scalar = kind is EventKind.SCALAR
    is_opening = is_scalar or kind in (EventKind.TABLE, EventKind.ITEMS)
    return YamlEvent(
        kind=kind,
        line=event.start_mark.line,
        column=event.start_mark.column,
        end_line=event.end_mark.line,
        end_column=event.end_mark.column,
        value=event.value if is_scalar else "",
        anchor=event.anchor if is_opening or kind is EventKind.ALIAS else None,
        tag=event.tag if is_opening else None,
        is_plain=is_scalar and bool(event.implicit[0]) and event.tag is None,
    )
