"""Spans of time, in all forms of `sbatch --time`."""

from __future__ import annotations

import math

import pytest

from pdctl.executors.slurm_job.times import time_s

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90 * _MINUTE),
        ("4:00", 4 * _MINUTE),
        ("04:00:30", 4 * _HOUR + 30),
        ("100:00:00", 100 * _HOUR),
        ("1-12", _DAY + 12 * _HOUR),
        ("1-12:30", _DAY + 12 * _HOUR + 30 * _MINUTE),
        ("2-00:00:05", 2 * _DAY + 5),
        ("UNLIMITED", math.inf),
        ("infinite", math.inf),
    ],
)
def test_a_span_is_read_as_slurm_reads_it(text, seconds):
    assert time_s(text) == seconds


@pytest.mark.parametrize("text", ["4h", "", "1:2:3:4", "-5", "1-", "1-2-3", "Partition_Limit", "04:00:00 "])
def test_other_words_are_no_span(text):
    assert time_s(text) is None
