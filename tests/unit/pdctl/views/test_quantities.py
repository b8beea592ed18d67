from __future__ import annotations

import pytest

from pdctl.views.quantities import counted, duration, size


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0.0s"),
        (0.44, "0.4s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.4, "59s"),
        (59.6, "1m"),
        (72.3, "1m 12s"),
        (600.0, "10m"),
        (7_500.0, "2h 5m"),
        (273_600.0, "3d 4h"),
        (-1.0, "0.0s"),
    ],
)
def test_a_duration_has_two_parts_at_most(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (431 * 2**20, "431 MiB"),
        (1.4 * 2**30, "1.4 GiB"),
        (1023.9 * 2**20, "1.0 GiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_a_size_has_the_unit_that_keeps_it_short(num_bytes: float, text: str) -> None:
    assert size(num_bytes) == text


def test_counts_agree_with_their_nouns() -> None:
    assert counted(1, "error") == "1 error"
    assert counted(2, "error") == "2 errors"
    assert counted(3, "process", "processes") == "3 processes"
