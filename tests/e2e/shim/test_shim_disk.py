"""A disk that fills up, and output without end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

DISK_BYTES = 512 << 10


@pytest.fixture
def small_disk(node) -> Iterator[Path]:
    """The run directories lie on a disk of their own, half a megabyte large."""
    node.root.mkdir()
    if os.geteuid() != 0:
        pytest.skip("mounting a small disk needs root")
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", node.root], check=True)
    yield node.root
    left = [entry["process_id"] for entry in node.ask("status")]
    if left:
        node.stop(*left, grace_s=0)
    subprocess.run(["umount", node.root], check=True)


def _fill(disk: Path) -> None:
    with (disk / "ballast").open("wb", buffering=0) as file:
        for size in (4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue


def test_the_end_is_recorded_on_a_disk_that_filled_up_meanwhile(node, small_disk, tmp_path):
    sign = tmp_path / "go"
    node.start("a-0.0", "sh", "-c", f"until [ -e {sign} ]; do sleep 0.02; done; exit 9")
    _fill(small_disk)
    sign.touch()
    assert node.wait_for_exit("a-0.0")["exit_code"] == 9


def test_a_stop_on_a_full_disk_is_recorded_and_clears_up(node, small_disk):
    node.start("a-0.0", "sleep", "100")
    _fill(small_disk)
    assert node.stop("a-0.0")[0]["survivors"] == []
    entry = node.status("a-0.0")
    assert (entry["state"], entry["is_stopped"]) == ("exited", True)
    assert node.ask("forget") == {"kept": []}


def test_a_start_on_a_full_disk_is_a_clear_answer_and_leaves_nothing(node, small_disk):
    _fill(small_disk)
    answer = node.start("a-0.0", "sleep", "100")
    assert not answer["started"]
    assert "No space left on device" in answer["error"]
    (small_disk / "ballast").unlink()
    assert node.ask("status") == []
    assert node.start("a-0.0", "sleep", "100")["started"]


def test_what_else_finds_no_room_says_so(node, small_disk):
    (small_disk / "demo").mkdir()
    _fill(small_disk)
    told = "No space left on device"
    plan = {"content": "x" * 9000, "generation": 1, "pending": []}
    assert told in node.ask("keep", request=plan)["error"]
    assert told in node.ask("lock", request={"owner": {"token": "t1"}})["error"]
    assert node.ask("holder") == {"holder": None, "pending": []}


@pytest.mark.usefixtures("small_disk")
def test_output_stays_bounded_where_there_is_no_room_to_rotate(node):
    """The past is given up, not the bound: otherwise this writer would wait for room for ever."""
    bound = DISK_BYTES * 6 // 10
    program = (
        "import os, time\n"
        "for n in range(1500):\n"
        "    left = b'%04d' % n * 250 + b'\\n'\n"
        "    while left:\n"
        "        try: left = left[os.write(1, left):]\n"
        "        except OSError: time.sleep(0.01)\n"
        "    time.sleep(0.0005)\n"
        f"while os.fstat(1).st_size > {bound}: time.sleep(0.01)\n"
        "print('the end')"
    )
    node.start_python("a-0.0", program, log_max_bytes=bound)
    node.wait_for_exit("a-0.0")
    assert node.output("a-0.0").endswith("the end\n")
    assert not (node.run_dir("a-0.0") / "output.log.1").exists()


def test_a_flood_of_output_stays_within_bounds(node):
    """This one lets the shim rotate, though the machine be busy; otherwise it waits for nothing."""
    program = (
        "import os, time\n"
        "for n in range(2_000):\n"
        "    os.write(1, b'line %06d of the flood, padded\\n' % n * 100)\n"
        "    while os.fstat(1).st_size > 1_500_000: time.sleep(0.01)\n"
    )
    node.start_python("a-0.0", program, log_max_bytes=500_000)
    node.wait_for_exit("a-0.0")
    sizes = {path.name: path.stat().st_size for path in node.run_dir("a-0.0").glob("output.log*")}
    # 6.2 MB were written. What one look misses until the next counts too, so the bound is soft.
    assert sum(sizes.values()) < 4_000_000, sizes
    assert set(sizes) == {"output.log", "output.log.1"}


def test_rotation_keeps_every_line_of_calm_output(node):
    """Calm is who writes nothing while the shim rotates."""
    program = (
        "import os, time\n"
        "for n in range(300):\n"
        "    print('%04d' % n)\n"
        "    while os.fstat(1).st_size > 1000: time.sleep(0.01)\n"
    )
    node.start_python("a-0.0", program, log_max_bytes=1000)
    node.wait_for_exit("a-0.0")
    entries = node.ask_lines("logs", "a-0.0", request={"tail": None})
    numbers = [int(entry["line"]) for entry in entries]
    assert numbers == list(range(numbers[0], 300))
    assert len(numbers) > 100
