from __future__ import annotations

import pytest

from pdctl.executors.ssh_patterns import is_meant


@pytest.mark.parametrize(
    ("name", "patterns", "wanted"),
    [
        ("gpu1", ["gpu1"], True),
        ("gpu1", ["gpu?"], True),
        ("gpu12", ["gpu?"], False),
        ("gpu9", ["gpu*", "!gpu9"], False),
        ("gpu9", ["!gpu9", "gpu*"], False),
        ("gpu1", ["!gpu9"], False),
        ("[gpu1]:2222", ["[gpu*]:2222"], True),
        ("g", ["[gpu1]"], False),
    ],
)
def test_a_host_is_meant_by_a_pattern_that_fits_unless_another_forbids_it(name, patterns, wanted):
    assert is_meant(name, patterns) is wanted
