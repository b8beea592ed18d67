"""Events and diagnostics as JSON and back: what the steward tells, read by an operator elsewhere.

The two may be of different versions: an event that the reader doesn't know, or knows otherwise, is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from math import inf, isinf
from typing import cast, get_args, get_type_hints

from pdctl import events
from pdctl.diagnostics import Diagnostic, Excerpt, Severity, Span
from pdctl.events import Event
from pdctl.fields import FieldError, Fields

_KINDS: dict[str, type[Event]] = {kind.__name__: kind for kind in get_args(events.Event)}
_READERS: dict[object, Callable[[Fields, str], object]] = {
    str: Fields.text,
    int: Fields.integer,
    bool: Fields.flag,
    str | None: Fields.optional_text,
    int | None: Fields.optional_integer,
    float | None: Fields.optional_number,
    tuple[str, ...]: Fields.texts,
}


def event_json(event: Event) -> dict[str, object]:
    """JSON has no infinity: a deadline that never comes is null."""
    value: dict[str, object] = asdict(event)
    bounded = {
        name: None if isinstance(each, float) and isinf(each) else each for name, each in value.items()
    }
    return {"event": type(event).__name__, **bounded}


def event_from(found: Fields) -> Event | None:
    """None for what this version can't read."""
    try:
        kind = _KINDS.get(found.text("event"))
        if kind is None:
            return None
        types: Mapping[str, object] = get_type_hints(kind)
        make = cast("Callable[..., Event]", kind)
        return make(**{each.name: _value(found, each.name, types[each.name]) for each in fields(kind)})
    except FieldError:
        return None


def _value(found: Fields, name: str, wanted: object) -> object:
    if name not in found.values:
        raise FieldError(f"{found.what} has no `{name}`")
    if wanted is float:
        number = found.optional_number(name)
        return inf if number is None else float(number)
    return _READERS[wanted](found, name)


def diagnostic_json(diagnostic: Diagnostic) -> dict[str, object]:
    return asdict(diagnostic)


def diagnostic_from(found: Fields) -> Diagnostic:
    """Raises `FieldError` for what is none."""
    span = found.optional_object("span")
    return Diagnostic(
        code=found.text("code"),
        message=found.text("message"),
        severity=Severity.WARNING if found.text("severity") == Severity.WARNING.value else Severity.ERROR,
        span=None if span is None else _span_from(span),
        label=found.optional_text("label"),
        path=found.optional_text("path"),
        notes=found.texts("notes"),
        help=found.optional_text("help"),
        excerpts=tuple(
            Excerpt(title=each.text("title"), lines=each.texts("lines")) for each in found.objects("excerpts")
        ),
    )


def _span_from(found: Fields) -> Span:
    return Span(
        file=found.text("file"),
        line=found.integer("line"),
        column=found.integer("column"),
        length=found.integer("length"),
        text=found.text("text"),
    )
