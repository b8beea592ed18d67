"""Reading output through the shim while processes write, rotate, end and start again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest


@pytest.fixture
def follow(node) -> Iterator:
    """`follow(*process_ids, tail=0)` starts a follower and gives its entries, one by one.

    The empty lines between them are the beats by which a quiet follower notices that its reader has left.
    """
    followers: list[subprocess.Popen[str]] = []

    def start(*process_ids: str, tail: int = 0) -> tuple[subprocess.Popen[str], Iterator[dict]]:
        argv = node.argv("logs", str(node.root), "demo", *process_ids)
        follower = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        followers.append(follower)
        with follower.stdin as stdin:
            stdin.write(json.dumps({"tail": tail, "follow": True}))
        return follower, (json.loads(line) for line in follower.stdout if line.strip())

    yield start
    for follower in followers:
        follower.kill()
        follower.stdout.close()
        follower.wait()


def _lines(entries: list[dict]) -> list[str]:
    return [entry["line"] for entry in entries]


def test_the_last_lines_of_each_process(node, wait_until):
    for name in ("a-0.0", "b-0.0"):
        node.start("a-0.0" if name == "a-0.0" else name, "printf", f"{name} 1\\n{name} 2\\n\\n{name} end")
    wait_until(lambda: all(entry["state"] == "exited" for entry in node.ask("status")))
    entries = node.ask_lines("logs", "a-0.0", "b-0.0", request={"tail": 3})
    assert entries[0] == {"process_id": "a-0.0", "run_id": "000001", "line": "a-0.0 2"}
    assert _lines(entries) == ["a-0.0 2", "", "a-0.0 end", "b-0.0 2", "", "b-0.0 end"]
    assert _lines(node.ask_lines("logs", "a-0.0", request={"tail": 0})) == []
    assert len(node.ask_lines("logs", "a-0.0", request={})) == 4


def test_the_tail_reaches_back_into_the_rotated_file(node):
    node.start("a-0.0", "sleep", "100")
    (node.run_dir("a-0.0") / "output.log.1").write_text("1\n2\n3\n")
    (node.run_dir("a-0.0") / "output.log").write_text("4\n")
    assert _lines(node.ask_lines("logs", "a-0.0", request={"tail": 3})) == ["2", "3", "4"]


@pytest.mark.parametrize("num_lines", [1, 10, 20_000, 99_999])
def test_the_tail_of_a_large_file_is_read_from_its_end(node, num_lines):
    node.start("a-0.0", "sleep", "100")
    written = [f"{number:07} padded to a length" for number in range(30_000)]
    (node.run_dir("a-0.0") / "output.log").write_text("\n".join(written) + "\n")
    assert _lines(node.ask_lines("logs", "a-0.0", request={"tail": num_lines})) == written[-num_lines:]


def test_bytes_that_are_no_text_and_progress_bars_become_lines(node, wait_until):
    node.start("a-0.0", "printf", "caf\\351\\n 10%%\\r 50%%\\r100%%\\r\\nend\\r\\n")
    node.wait_for_exit("a-0.0")
    assert _lines(node.ask_lines("logs", "a-0.0", request={})) == ["caf\ufffd", "100%", "end"]


def test_a_process_without_output_or_without_any_run_has_no_lines(node):
    node.start("a-0.0", "sleep", "100")
    assert node.ask_lines("logs", "a-0.0", "never-0.0", request={"tail": 5}) == []


def test_following_goes_on_over_rotation_and_into_the_next_run(node, follow, tmp_path):
    """Nothing is written while the shim rotates, and it rotates once between two looks: else lines may go."""
    program = (
        "import os, time\n"
        "for start in range(0, 400, 80):\n"
        "    os.write(1, b''.join(b'%d\\n' % n for n in range(start, start + 80)))\n"
        "    while os.fstat(1).st_size: time.sleep(0.01)\n"
        "    os.write(1, b'cut\\n')\n"
        f"    while not os.path.exists(f'{tmp_path}/read-{{start}}'): time.sleep(0.01)\n"
    )
    node.start_python("a-0.0", program, log_max_bytes=200)
    _, entries = follow("a-0.0", tail=1000)
    for start in range(0, 400, 80):
        batch = [next(entries) for _ in range(81)]
        assert _lines(batch) == [*(str(number) for number in range(start, start + 80)), "cut"]
        (tmp_path / f"read-{start}").touch()
    assert (node.run_dir("a-0.0") / "output.log.1").exists()
    node.wait_for_exit("a-0.0")
    node.start("a-0.0", "echo", "again")
    assert next(entries).items() >= {"process_id": "a-0.0", "run_id": "000002", "line": "again"}.items()


def test_following_starts_before_the_process_does(node, follow):
    node.start("c-0.0", "sh", "-c", "echo up; sleep 100")
    _, entries = follow("a-0.0", "b-0.0", "c-0.0", tail=1)
    assert next(entries)["line"] == "up"
    node.start("b-0.0", "echo", "hello")
    assert next(entries).items() >= {"process_id": "b-0.0", "run_id": "000001", "line": "hello"}.items()


def test_a_last_line_without_an_end_is_shown_when_the_next_run_begins(node, follow, tmp_path):
    sign = tmp_path / "go"
    node.start("a-0.0", "sh", "-c", f"echo up; until [ -e {sign} ]; do sleep 0.02; done; printf 'no end'")
    _, entries = follow("a-0.0", tail=1)
    assert next(entries)["line"] == "up"
    sign.touch()
    node.wait_for_exit("a-0.0")
    node.start("a-0.0", "echo", "next")
    assert _lines([next(entries), next(entries)]) == ["no end", "next"]


def test_a_quiet_follower_ends_when_its_reader_leaves(node, follow):
    """Over SSH nothing else would end it: the node must not collect followers of vanished operators."""
    node.start("a-0.0", "sh", "-c", "echo up; sleep 100")
    follower, entries = follow("a-0.0", tail=1)
    assert next(entries)["line"] == "up"
    follower.stdout.close()
    assert follower.wait(timeout=10) == 0


def test_a_reader_that_comes_back_gets_what_it_missed(node, wait_until):
    program = "import time\nfor n in range(6): print(n, flush=True); time.sleep(0.2)\ntime.sleep(99)"
    node.start_python("a-0.0", program)
    wait_until(lambda: node.output("a-0.0").startswith("0\n1\n"))
    before = node.ask_lines("logs", "a-0.0", request={"tail": 100})
    assert all("mark" not in entry for entry in before[:-1])
    wait_until(lambda: node.output("a-0.0").endswith("5\n"))
    marks = {"a-0.0": before[-1]["mark"]}
    child = subprocess.Popen(
        node.argv("logs", str(node.root), "demo", "a-0.0"), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with child.stdin as stdin:
        stdin.write(json.dumps({"tail": 0, "follow": True, "marks": marks}).encode())
    entries = (json.loads(line)["line"] for line in child.stdout if line.strip())
    missed = [next(entries) for _ in range(6 - len(before))]
    child.stdout.close()
    child.wait(timeout=10)
    assert [entry["line"] for entry in before] + missed == [str(number) for number in range(6)]


def test_last_lines_come_as_one_answer(node, wait_until):
    node.start("a-0.0", "sh", "-c", "printf 'one\\ntwo\\nthree\\n'")
    wait_until(lambda: node.output("a-0.0").endswith("three\n"))
    request = {"process_ids": ["a-0.0", "b-0.0"], "num_lines": 2}
    assert node.ask("tails", request=request) == {"a-0.0": ["two", "three"], "b-0.0": []}
