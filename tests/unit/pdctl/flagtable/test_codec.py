from __future__ import annotations

import json

import pytest

from pdctl.fields import FieldError
from pdctl.flagtable.codec import FORMAT, parse_table, table_text, table_value
from pdctl.flagtable.model import Flag, FlagTable, Unread, ValueType

PLAIN = Flag(name="model-path")
FULL = Flag(
    name="cuda-graph-bs",
    aliases=("graph-bs",),
    negation="no-cuda-graph-bs",
    type=ValueType.INT,
    nargs="+",
    choices=(1, 2),
    default=(1,),
    dest="cuda_graph_bs_decode",
    repeats=True,
    is_required=True,
    is_open=True,
    is_deprecated=True,
    is_refused=True,
    successor="--cuda-graph-bs-decode",
    unread=(Unread.DEFAULT,),
)


def test_a_table_survives_being_written_and_read() -> None:
    table = FlagTable.of("sglang", "1.0", [PLAIN, FULL])
    assert parse_table("it", table_text(table).encode()) == table


def test_a_table_has_one_flag_per_line_and_only_what_is_not_as_usual() -> None:
    lines = table_text(FlagTable.of("sglang", "1.0", [PLAIN, Flag(name="trace", nargs=0)])).splitlines()
    assert lines[1:] == ['{"name": "model-path"},', '{"name": "trace", "nargs": 0}', "]}"]


def test_the_value_and_the_text_say_the_same() -> None:
    table = FlagTable.of("sglang", "1.0", [PLAIN, FULL])
    assert json.loads(json.dumps(table_value(table))) == json.loads(table_text(table))


@pytest.mark.parametrize(
    "flag",
    [
        {},
        {"name": 3},
        {"name": "a", "kind": "int"},
        {"name": "a", "type": "number"},
        {"name": "a", "nargs": -1},
        {"name": "a", "nargs": "many"},
        {"name": "a", "choices": [None]},
        {"name": "a", "default": {"b": 1}},
        {"name": "a", "unread": ["aliases"]},
        {"name": "a", "is_open": "yes"},
    ],
)
def test_a_damaged_table_is_a_field_error(flag: dict[str, object]) -> None:
    document = {"format": FORMAT, "program": "sglang", "version": "1", "flags": [flag]}
    with pytest.raises(FieldError):
        parse_table("it", json.dumps(document).encode())


def test_a_table_of_another_format_is_a_field_error() -> None:
    document = {"format": "pdctl/flags/v9", "program": "sglang", "version": "1", "flags": []}
    with pytest.raises(FieldError, match="v9"):
        parse_table("it", json.dumps(document).encode())
