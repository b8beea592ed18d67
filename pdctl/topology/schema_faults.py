"""What the schema's validator finds, in our words: one diagnostic per mistake, at its place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from pdctl.diagnostics import Diagnostic
from pdctl.topology.nearest import nearest, suggest
from pdctl.topology.source import DocumentPath, SourceMap, dotted
from pdctl.topology.tree import is_private

if TYPE_CHECKING:
    from jsonschema import ValidationError

_MAX_SHOWN_LEN = 40
_TYPE_WORDS = {
    "string": "text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "a mapping",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Breach:
    """One validation error, with types that jsonschema's own doesn't have."""

    keyword: str  # of the schema: `type`, `required`, …
    wanted: Any  # what the schema says there
    found: Any
    path: DocumentPath
    schema: Mapping[str, Any]
    is_of_key: bool  # about a key's spelling: `path` is the mapping's, `found` the key

    @classmethod
    def of(cls, error: ValidationError) -> _Breach:
        return cls(
            keyword=str(error.validator),
            wanted=error.validator_value,
            found=error.instance,
            path=tuple(error.absolute_path),
            schema=cast(Mapping[str, Any], error.schema),
            is_of_key="propertyNames" in error.absolute_schema_path,
        )


@dataclass(slots=True, kw_only=True)
class FaultReport:
    """Collects validation errors of one document."""

    schema: Mapping[str, Any]
    source: SourceMap
    partial: bool  # what is absent here may stand elsewhere
    what: str = "a topology"
    _found: list[Diagnostic] = field(default_factory=list[Diagnostic])
    _missing: dict[DocumentPath, Diagnostic] = field(default_factory=dict[DocumentPath, Diagnostic])
    _meant: set[DocumentPath] = field(default_factory=set[DocumentPath])  # what misspelt keys stand for

    def add(self, error: ValidationError) -> None:
        breach = _Breach.of(error)
        match breach.keyword:
            case "additionalProperties":
                self._found.extend(self._unknown_keys(breach))
            case "required":
                self._add_missing(breach)
            case "type":
                self._found.append(self._wrong_type(breach))
            case "minimum" | "maximum" | "exclusiveMinimum":
                self._found.append(self._out_of_range(breach))
            case "const":
                self._found.append(self._not_allowed(breach))
            case _:  # pattern, minLength, minItems: how a text or a list must look
                self._found.append(self._wrong_form(breach))

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """A key isn't missing where a misspelt one stands for it."""
        missing = [fault for path, fault in self._missing.items() if path not in self._meant]
        return (*self._found, *missing)

    def _unknown_keys(self, breach: _Breach) -> Iterator[Diagnostic]:
        path, known = breach.path, cast(Mapping[str, Any], breach.schema["properties"])
        for key in breach.found:
            if key in known or is_private(key):
                continue
            near = nearest(key, known)
            if near is not None:
                self._meant.add((*path, near))
            yield Diagnostic(
                code="PD121",
                message=f"{f'`{dotted(path)}`' if path else self.what} has no key `{_on_one_line(key)}`",
                span=self.source.key(*path, key),
                path=dotted((*path, key)),
                help=_where_key_belongs(self.schema, key, path) or suggest(key, known),
            )

    def _add_missing(self, breach: _Breach) -> None:
        path = breach.path
        # Mappings merge with what they are laid over; an item of a list has to be whole.
        may_be_absent = self.partial and not any(isinstance(part, int) for part in path)
        for key in breach.wanted:
            if key in breach.found or may_be_absent:
                continue
            self._missing[(*path, key)] = Diagnostic(
                code="PD122",
                message=f"{f'`{dotted(path)}`' if path else 'the document'} lacks `{key}`",
                span=self.source.key(*path),
                path=dotted((*path, key)),
                help=f"add `{key}: {_example(breach.schema['properties'][key])}`",
            )

    def _wrong_type(self, breach: _Breach) -> Diagnostic:
        path, value = breach.path, breach.found
        types: list[str] = [breach.wanted] if isinstance(breach.wanted, str) else breach.wanted
        # An absent value has no width: its key is what can be marked.
        span = self.source.key(*path) if value is None else self.source.value(*path)
        written = span.text[span.column - 1 :][: span.length] if span is not None else str(value)
        found = _long_number(value, written) or _shown(value)
        return Diagnostic(
            code="PD123",
            message=f"`{dotted(path)}` must be {_wanted(types)}, found {found}",
            span=span,
            path=dotted(path),
            help=_type_hint(types, value, written),
        )

    def _out_of_range(self, breach: _Breach) -> Diagnostic:
        bound = f"{breach.wanted:,}"
        words = {
            "minimum": f"at least {bound}",
            "maximum": f"at most {bound}",
            "exclusiveMinimum": f"above {bound}",
        }
        return Diagnostic(
            code="PD124",
            message=f"`{dotted(breach.path)}` must be {words[breach.keyword]}, found {breach.found}",
            span=self.source.value(*breach.path),
            path=dotted(breach.path),
        )

    def _wrong_form(self, breach: _Breach) -> Diagnostic:
        wanted = breach.schema["x-must-be"] if breach.keyword == "pattern" else "filled in"
        if breach.is_of_key:
            path = (*breach.path, breach.found)
            message = f"the key `{_on_one_line(breach.found)}` must be {wanted}"
            span = self.source.key(*path)
        else:
            path = breach.path
            message = f"`{dotted(path)}` must be {wanted}, found {_shown(breach.found)}"
            span = self.source.value(*path)
        return Diagnostic(code="PD125", message=message, span=span, path=dotted(path))

    def _not_allowed(self, breach: _Breach) -> Diagnostic:
        return Diagnostic(
            code="PD126",
            message=f"`{dotted(breach.path)}` must be `{breach.wanted}`, found {_shown(breach.found)}",
            span=self.source.value(*breach.path),
            path=dotted(breach.path),
            help=f"this pdctl reads `{breach.wanted}`",
        )


def _where_key_belongs(schema: Mapping[str, Any], key: str, path: DocumentPath) -> str | None:
    """A key that exists elsewhere, nearest first, or a flag that stands beside `args`."""
    homes = [home for home in _key_paths(schema, schema) if home[-1] == key]
    if homes:
        home = max(homes, key=lambda each: sum(a == b for a, b in zip(each, path, strict=False)))
        return (
            f"`{key}` belongs under `{dotted(home[:-1])}`" if len(home) > 1 else f"`{key}` belongs at the top"
        )
    if "-" in key and path in (("prefill",), ("decode",), ("router",), ("defaults",)):
        return f"flags of the program go under `{dotted((*path, 'args'))}`"
    return None


def _key_paths(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """The path of every key that the schema names, lists' items apart."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    for name, below in schema.get("properties", {}).items():
        yield (name,)
        for path in _key_paths(below, root):
            yield (name, *path)


def _wanted(types: list[str]) -> str:
    words = [_TYPE_WORDS[each] for each in types if each in _TYPE_WORDS]
    if "number" in types and "integer" in types:
        words.remove(_TYPE_WORDS["integer"])
    return ", ".join(words[:-1]) + (" or " if len(words) > 1 else "") + words[-1]


def _shown(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return f"`{str(value).lower()}`"
        case str():
            return f"the text `{_on_one_line(value)}`" if value else "an empty text"
        case int() | float():
            return f"the number {value}"
        case list():
            return "a list" if value else "an empty list"
        case _:
            return "a mapping"


def _long_number(value: Any, written: str) -> str | None:
    """Digits without quotes that are too many for a number, and so are text (`scalars.py`)."""
    digits = value.lstrip("+-") if isinstance(value, str) else ""
    return f"a number of {len(digits)} digits" if digits.isdecimal() and written[:1] not in "\"'" else None


def _on_one_line(text: str) -> str:
    """For a message: line breaks as escapes, and no more than forty characters."""
    escaped = json.dumps(text, ensure_ascii=False)[1:-1]
    return escaped if len(escaped) <= _MAX_SHOWN_LEN else escaped[: _MAX_SHOWN_LEN - 1] + "…"


def _type_hint(types: list[str], value: Any, written: str) -> str | None:
    match value:
        case bool() | int() | float() if types == ["string"]:
            return f'put it in quotes: `"{written}"`'
        case str() if "boolean" in types and value.lower() in ("on", "off", "yes", "no", "y", "n"):
            return "write `true` or `false`"
        case str() if value.lstrip("+-").isdigit() and ("integer" in types or "number" in types):
            return "remove the quotes" if written[:1] in "\"'" else None
        case str() if types in (["array"], ["array", "object"]):
            return f"write a list: `[{value}]`"
        case None:
            return "write a value after the `:`, or remove the key"
        case _:
            return None


def _example(schema: Mapping[str, Any]) -> str:
    value = schema["examples"][0]
    return value if isinstance(value, str) else json.dumps(value).replace('"', "")
