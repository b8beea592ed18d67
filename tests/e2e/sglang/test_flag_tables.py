"""The tables that ship say of every flag what the real parser of that version holds."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pdctl.flagtable.model import Flag, FlagTable, Unread
from pdctl.flagtable.shelf import known_versions, load_flag_table
from pdctl.inspection.programs import inspect
from pdctl.inspection.sources import Folder

pytestmark = pytest.mark.slow

FLAGS = Path(__file__).parents[2] / "testbed" / "sglang_cpu" / "flags.py"
SERVED_VERSION = "0.5.23"
TYPES = {
    None: "text",
    "str": "text",
    "nullable_str": "text",
    "int": "int",
    "float": "float",
    "loads": "json",
    "json_list_type": "json",
    "human_readable_int": "count",
}


def as_the_parser_says(real: dict[str, Any]) -> dict[str, Any]:
    choices = real["choices"]
    return {
        "spellings": set(real["spellings"]),
        "type": TYPES.get(real["type"], "opaque") if real["nargs"] != 0 else "text",
        "nargs": real["nargs"],
        # None can't be typed; a set has no order.
        "choices": None if choices is None else sorted(str(each) for each in choices if each is not None),
        "dest": real["dest"],
        "is_required": real["is_required"],
        "repeats": real["action"] == "_AppendAction",
        "is_deprecated_action": real["action"].startswith("Deprecated"),
    }


def as_the_table_says(flag: Flag) -> dict[str, Any]:
    return {
        "spellings": set(flag.spellings),
        "type": str(flag.type),
        "nargs": flag.nargs,
        "choices": None if flag.choices is None else sorted(str(each) for each in flag.choices),
        "dest": flag.setting,
        "is_required": flag.is_required,
        "repeats": flag.repeats,
    }


def compare(table: FlagTable, real: list[dict[str, Any]]) -> list[str]:
    differences = []
    by_name = {flag.name: flag for flag in table.flags}
    for each in real:
        flag = by_name.pop(each["spellings"][0], None)
        if flag is None:
            differences.append(f"{each['spellings'][0]}: not in the table")
            continue
        wanted, found = as_the_parser_says(each), as_the_table_says(flag)
        if wanted.pop("is_deprecated_action") and not flag.is_deprecated:
            differences.append(f"{flag.name}: deprecated")
        if Unread.CHOICES in flag.unread:
            wanted["choices"] = None
        if Unread.DEFAULT not in flag.unread:
            wanted["default"], found["default"] = defaults(each, flag)
        differences += [
            f"{flag.name}: {key} is {wanted[key]!r}, the table says {found[key]!r}"
            for key in wanted
            if wanted[key] != found[key]
        ]
    return [*differences, *(f"{name}: only in the table" for name in by_name)]


def defaults(real: dict[str, Any], flag: Flag) -> tuple[object, object]:
    mine = list(flag.default) if isinstance(flag.default, tuple) else flag.default
    suppressed = real["default"] == "==SUPPRESS=="
    return (None if suppressed else real["default"]), mine


@pytest.mark.parametrize("version", known_versions("sglang"))
def test_a_table_of_sglang_is_what_its_parser_holds(real_parser: Any, version: str) -> None:
    table = load_flag_table("sglang", version)
    assert table is not None
    assert compare(table, real_parser(version).described_flags) == []


@pytest.mark.parametrize("version", [each for each in known_versions("sglang") if each != SERVED_VERSION])
def test_reading_the_source_again_gives_the_table_that_ships(testbed: Any, version: str) -> None:
    assert inspect("sglang", version, Folder(path=testbed.sources[version])) == load_flag_table(
        "sglang", version
    )


def test_the_table_of_the_router_is_what_its_parser_holds() -> None:
    table = load_flag_table("sglang_router", "0.3.2")
    assert table is not None
    done = subprocess.run([sys.executable, FLAGS], check=True, stdout=subprocess.PIPE, timeout=250)
    assert compare(table, json.loads(done.stdout)) == []
