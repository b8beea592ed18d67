"""The operators' lock under real concurrency, in processes of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

CONTENDER = """
import os, sys
from runtime.shim.oplock import lock, unlock
root, name = sys.argv[1:]
inside = os.path.join(root, "inside")
for turn in range(150):
    token = f"{name}-{turn}"
    while not lock(os.path.join(root, "run"), "demo", {"token": token}, "dead")["acquired"]:
        pass
    os.close(os.open(inside, os.O_CREAT | os.O_EXCL))  # fails when another one is inside
    os.unlink(inside)
    assert unlock(os.path.join(root, "run"), "demo", token) == {"released": True}
"""


def test_two_never_hold_the_lock_though_it_and_its_folder_come_and_go(tmp_path):
    """Each `unlock` finds nothing left and removes the whole root under the feet of the others."""
    contenders = [
        subprocess.Popen(
            [sys.executable, "-c", CONTENDER, tmp_path, str(number)],
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[4],
        )
        for number in range(4)
    ]
    assert [contender.communicate(timeout=60)[1] for contender in contenders] == [""] * 4
    assert list(tmp_path.iterdir()) == []
