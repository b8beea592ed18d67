"""What is left on a node by those who only looked goes; what a deployment needs stays."""

from __future__ import annotations

import os

import pytest

from runtime.shim.history import note
from runtime.shim.keep import forget, keep, tidy
from runtime.shim.oplock import lock, unlock


@pytest.fixture
def root(tmp_path):
    """Where a shim lies, and has been run."""
    root = tmp_path / "pdctl/run"
    root.mkdir(parents=True)
    for name in ("shim-1.py", "shim-1.pyc"):
        (root / name).write_text("")
    return root


def _plan(root) -> None:
    keep(str(root), "other", {"content": "{}", "generation": 1, "pending": []})


def test_the_shim_and_the_line_of_a_refused_act_go_and_so_does_what_held_them(root):
    note(str(root), "demo", {"verb": "up"})
    tidy(str(root))
    assert list(root.parents[1].iterdir()) == []


@pytest.mark.parametrize(
    "use",
    [
        _plan,
        lambda root: lock(str(root), "other", {"token": "t"}, None),
        lambda root: (root / "other/decode-0.0").mkdir(parents=True),
        lambda root: (root / "somebody's").write_text(""),
    ],
    ids=["plan", "lock", "process", "a file of others"],
)
def test_nothing_goes_that_is_in_use(root, use):
    use(root)
    before = sorted(os.walk(root))
    tidy(str(root))
    assert sorted(os.walk(root)) == before


def test_where_nothing_ran_forgetting_takes_the_shim_too(root):
    forget(str(root), "demo", None, keeps_plan=False)
    assert not root.exists()


def test_the_end_of_a_lock_leaves_what_another_deployment_needs(root):
    _plan(root)
    lock(str(root), "demo", {"token": "t"}, None)
    unlock(str(root), "demo", "t")
    assert (root / "shim-1.py").exists()
    assert not (root / "demo").exists()
