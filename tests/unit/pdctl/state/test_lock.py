from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from pdctl.fields import FieldError, Fields
from pdctl.state.lock import is_dead, owner_from_fields, this_owner


def _ticks(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def test_each_run_of_a_verb_is_an_owner_of_its_own():
    first, second = this_owner("up"), this_owner("up")
    assert first.token != second.token
    assert (first.pid, first.start_ticks) == (os.getpid(), _ticks(os.getpid()))
    assert first.who.endswith(f"@{first.host}")


def test_an_owner_survives_json():
    owner = this_owner("down")
    assert owner_from_fields(Fields("the lock", owner.to_json())) == owner


def test_a_damaged_owner_is_a_fault():
    with pytest.raises(FieldError, match="`pid`"):
        owner_from_fields(Fields("the lock", {**this_owner("up").to_json(), "pid": "12"}))


def test_a_living_process_is_not_dead():
    assert not is_dead(this_owner("up"))


def test_a_process_that_ended_is_dead_and_so_is_its_zombie():
    child = subprocess.Popen(["sleep", "100"])
    owner = replace(this_owner("up"), pid=child.pid, start_ticks=_ticks(child.pid))
    assert not is_dead(owner)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, not reaped
    assert is_dead(owner)
    child.wait()
    assert is_dead(owner)


def test_a_later_process_with_the_same_pid_does_not_keep_the_lock():
    owner = this_owner("up")
    assert is_dead(replace(owner, start_ticks=owner.start_ticks - 1))


def test_a_rebooted_host_has_no_owners_from_before():
    assert is_dead(replace(this_owner("up"), boot_id="an earlier one"))


def test_owners_that_this_machine_cannot_see_count_as_alive():
    gone = replace(this_owner("up"), start_ticks=0)
    assert is_dead(gone)
    assert not is_dead(replace(gone, host="another"))
    assert not is_dead(replace(gone, host="another", boot_id="another"))
    assert not is_dead(replace(gone, pid_namespace=1))
