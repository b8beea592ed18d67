"""Values that look like JSON and are none: a quote lost on the way from a shell line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flagtable.model import ValueType
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.blocks import ArgsBlock, blocks
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath


def _braces_hold_json(topology: Topology) -> Iterable[Diagnostic]:
    """Flags that their parser takes for text, and reads later; of JSON flags, PD233 tells."""
    for block in blocks(topology):
        for path, text in _texts(block):
            try:
                json.loads(text)
            except ValueError as error:
                yield at_value(
                    topology,
                    path,
                    "PD244",
                    f"`{text}` begins like JSON and is none: {_reason(error)}",
                    severity=Severity.WARNING,
                    notes=("the process would find out when it reads the value, after its start",),
                    help="write a mapping of YAML, which reaches the flag as JSON",
                )


def _texts(block: ArgsBlock) -> Iterator[tuple[DocumentPath, str]]:
    for key, value in block.args.items():
        flag = block.find(key)
        is_checked = flag is not None and flag.type is ValueType.JSON
        if isinstance(value, str) and value.lstrip().startswith("{") and not is_checked:
            yield (*block.path, key), value


def _reason(error: ValueError) -> str:
    return error.msg.lower() if isinstance(error, json.JSONDecodeError) else str(error)


RULES = (Rule(code="PD244", check=_braces_hold_json),)
