"""Records and /proc lines as the shim reads them."""

from __future__ import annotations

import json
import os
from types import SimpleNamespace

import pytest

from runtime.shim.proc import PAGE_BYTES, Process, Table, read_process
from runtime.shim.record import (
    EXIT_BYTES,
    RequestError,
    check_name,
    lock_file,
    read_json,
    reserve_exit,
    run_ids,
    write_exit,
    write_json,
)
from runtime.shim.status import judge

BOOT = "boot-2"
STARTED = {"boot_id": BOOT, "pid": 5}
SHIM, WORKER = object(), object()


def _family(**fields) -> SimpleNamespace:
    return SimpleNamespace(**{"homeless": [], "status": STARTED, "worker": None, "shim": None, **fields})


@pytest.mark.parametrize(
    ("family", "ended", "expected"),
    [
        (_family(status={}, shim=SHIM), {}, ("starting", None)),
        (_family(status={}), {}, ("lost", "its shim ended before it started")),
        (_family(shim=SHIM, worker=WORKER), {}, ("running", None)),
        (_family(shim=SHIM, worker=WORKER, status={}), {}, ("running", "its status.json is damaged")),
        (_family(worker=WORKER), {}, ("orphaned", "its shim is gone")),
        (_family(shim=SHIM), {}, ("ending", None)),
        (_family(), {}, ("lost", "it ended without a record of how")),
        (_family(), {"code": 0}, ("exited", None)),
        (_family(), {"code": 127, "reason": "why"}, ("exited", "why")),
        (_family(status={"boot_id": "boot-1"}), {}, ("lost", "the host rebooted")),
        (_family(status={"boot_id": "boot-1"}), {"code": 0}, ("exited", None)),
        (_family(homeless=[{}], shim=SHIM), {}, ("orphaned", "its run directory was removed")),
    ],
)
def test_the_state_follows_from_who_lives_and_what_is_recorded(family, ended, expected):
    assert judge(family, ended, BOOT) == expected


@pytest.mark.parametrize("command", [b"a", b"a b", b") S 1 (", b"(((", b"\xff)"])
def test_a_command_of_any_bytes_does_not_shift_the_fields(command):
    fields = b" ".join([b"S", b"11", b"22", b"33", *[b"0"] * 15, b"4242", b"0", b"7", b"0"])
    process = Process(9, b"9 (" + command + b") " + fields)
    told = (process.state, process.parent, process.group, process.session, process.start_ticks)
    assert told == ("S", 11, 22, 33, 4242)
    assert process.rss_bytes == 7 * PAGE_BYTES
    assert process.identity == (9, 4242)


def test_a_pid_with_another_start_is_another_process():
    me = read_process(os.getpid())
    table = Table()
    assert table.find(me.pid, me.start_ticks).pid == me.pid
    assert table.find(me.pid, me.start_ticks + 1) is None
    assert table.find(None, None) is None
    assert me.pid in {process.pid for process in table.tree(os.getppid())}


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\0" * 4096, b"\xff\xfe", b'"text"'])
def test_a_damaged_file_reads_as_empty(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    assert read_json(str(tmp_path / "file")) == {}
    assert read_json(str(tmp_path / "missing")) == {}


def test_writing_replaces_and_leaves_no_rest(tmp_path):
    path = tmp_path / "file"
    write_json(str(path), {"a": 1})
    write_json(str(path), {"a": 2})
    assert (read_json(str(path)), list(tmp_path.iterdir())) == ({"a": 2}, [path])
    assert path.stat().st_mode & 0o077 == 0


def test_a_write_that_fails_keeps_the_old_content(tmp_path):
    (tmp_path / "file").mkdir()
    with pytest.raises(IsADirectoryError):
        write_json(str(tmp_path / "file"), {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_exit_record_has_its_space_before_its_content(tmp_path):
    path = tmp_path / "exit.json"
    descriptor = reserve_exit(str(path))
    assert (path.stat().st_size, path.stat().st_blocks > 0, read_json(str(path))) == (EXIT_BYTES, True, {})
    write_exit(descriptor, {"code": 3, "reason": "x" * 9000})
    write_exit(descriptor, {"code": 4})
    os.close(descriptor)
    assert (path.stat().st_size, read_json(str(path))) == (EXIT_BYTES, {"code": 4})


def test_a_reason_of_any_length_fits_the_exit_record(tmp_path):
    descriptor = reserve_exit(str(tmp_path / "exit.json"))
    write_exit(descriptor, {"code": 3, "reason": "ü" * 9000})
    os.close(descriptor)
    assert json.loads((tmp_path / "exit.json").read_bytes().rstrip(b"\0")) == {"code": 3, "reason": "ü" * 200}


def test_a_lock_is_held_by_one_and_a_removed_file_locks_nothing(tmp_path):
    path = str(tmp_path / "lock")
    first = lock_file(path)
    assert lock_file(path) is None
    (tmp_path / "lock").unlink()
    second = lock_file(path)
    assert second is not None
    os.close(first)
    assert lock_file(path) is None
    os.close(second)


def test_runs_are_counted_and_other_names_ignored(tmp_path):
    for name in ("000010", "000009", "lock", "current", "12"):
        (tmp_path / name).mkdir()
    assert run_ids(str(tmp_path)) == ["000009", "000010"]
    assert run_ids(str(tmp_path / "missing")) == []


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "a\n", "A", "a..b", "-a", "a" * 128, None, 3])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(RequestError, match="is not a name"):
        check_name(name)


@pytest.mark.parametrize("name", ["a", "deepseek-v3", "decode-12.0", "0"])
def test_names_of_deployments_and_processes_pass(name):
    assert check_name(name) == name
