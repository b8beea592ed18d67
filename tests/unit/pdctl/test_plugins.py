"""What ships is found by name, and what plug-ins are built on is no plug-in."""

from __future__ import annotations

import pytest

from pdctl import plugins


@pytest.mark.parametrize(
    ("family", "shipped"),
    [
        ("engines", ("reference", "sglang")),
        ("routers", ("mini_lb", "sglang_router")),
        ("executors", ("local", "slurm", "ssh")),
    ],
)
def test_the_names_of_a_family_are_its_plug_ins_and_nothing_else(family, shipped):
    assert plugins.names(family) == shipped
    assert all(plugins.exists(family, name) for name in shipped)


def test_a_module_that_executors_share_is_none():
    assert not plugins.exists("executors", "shell")
    assert plugins.executor_factory("shell") is None
