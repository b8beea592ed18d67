"""When flags came and went, among the releases that were looked at: `schemas/<program>/history.json`.

`pdctl engine inspect --write` adds each version that it reads.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from pdctl.fields import FieldError, parse_fields
from pdctl.flagtable.model import FlagTable
from pdctl.flagtable.versions import in_order, version_key

HISTORY_FORMAT = "pdctl/flag-history/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Spellings, without dashes, and the sampled versions that have them."""

    sampled: tuple[str, ...] = ()  # oldest first
    spans: Mapping[str, tuple[str, str]] = field(default_factory=dict[str, tuple[str, str]])  # first and last
    successors: Mapping[str, str] = field(
        default_factory=dict[str, str]
    )  # what a release said to use instead


def has_flag(history: History, name: str, version: str) -> bool:
    """Whether a version that need not have been looked at lies between two that have the flag."""
    span, wanted = history.spans.get(name), version_key(version)
    if span is None or wanted is None:
        return False
    first, last = version_key(span[0]), version_key(span[1])
    return first is not None and last is not None and first <= wanted <= last


def extended(history: History, table: FlagTable) -> History:
    """The history with one more version in it."""
    spans = dict(history.spans)
    for spelling in table.by_spelling:
        ordered = in_order({*spans.get(spelling, ()), table.version})
        spans[spelling] = (ordered[0], ordered[-1])
    successors = {flag.name: flag.successor for flag in table.flags if flag.successor is not None}
    is_newest = in_order({*history.sampled, table.version})[-1] == table.version
    return History(
        sampled=in_order({*history.sampled, table.version}),
        spans=dict(sorted(spans.items())),
        successors=dict(
            sorted({**successors, **history.successors, **(successors if is_newest else {})}.items())
        ),
    )


def history_text(history: History) -> str:
    spans = ",\n".join(f"{json.dumps(name)}: {json.dumps(span)}" for name, span in history.spans.items())
    successors = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(successor)}" for name, successor in history.successors.items()
    )
    sampled = json.dumps(history.sampled)
    return (
        f'{{"format": "{HISTORY_FORMAT}", "sampled": {sampled},\n'
        f'"successors": {{\n{successors}\n}},\n"spans": {{\n{spans}\n}}}}\n'
    )


def parse_history(what: str, text: bytes) -> History:
    """Read a history; `FieldError` where it is damaged or of another format."""
    document = parse_fields(what, text)
    if document.text("format") != HISTORY_FORMAT:
        raise FieldError(f"{what} isn't of the format `{HISTORY_FORMAT}`")
    spans = document.object("spans")
    pairs = {name: spans.texts(name) for name in spans.values}
    return History(
        sampled=document.texts("sampled"),
        spans={name: (pair[0], pair[-1]) for name, pair in pairs.items() if pair},
        successors=document.text_map("successors"),
    )
