"""What a parser makes of values, as rules compare them."""

from __future__ import annotations

import pytest

from pdctl.flagtable.model import Flag, ValueType
from pdctl.flagtable.reading import as_read
from pdctl.topology.model import ArgValue

INT = Flag(name="page-size", type=ValueType.INT)
COUNT = Flag(name="context-length", type=ValueType.COUNT)
TEXT = Flag(name="kv-cache-dtype")
MANY = Flag(name="cuda-graph-bs", type=ValueType.INT, nargs="+")


@pytest.mark.parametrize(
    ("flag", "value", "read"),
    [
        (INT, 64, 64),
        (INT, "64", 64),
        (INT, " 64 ", 64),
        (INT, "-1", -1),
        (INT, (64,), 64),
        (INT, "many", "many"),
        (INT, "64k", "64k"),  # no such suffix here
        (INT, True, True),
        (INT, None, None),
        (COUNT, "64k", 64_000),
        (COUNT, "64Ki", 65_536),
        (COUNT, "1.5k", 1_500),
        (COUNT, "1.5Ki", "1.5Ki"),
        (COUNT, ("2M",), 2_000_000),
        (TEXT, ("fp8_e4m3",), "fp8_e4m3"),
        (TEXT, "64", "64"),
        (MANY, ("8", 16), (8, 16)),
        (MANY, (8,), (8,)),
        (None, "16", 16),
        (None, "many", "many"),
    ],
)
def test_two_ways_to_write_a_value_are_one(flag: Flag | None, value: ArgValue, read: ArgValue) -> None:
    assert as_read(flag, value) == read
