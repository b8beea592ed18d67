import os
import threading
from pathlib import Path

from runtime.models.lock import exclusive


def test_second_taker_waits_until_the_first_lets_go(tmp_path: Path) -> None:
    order: list[str] = []
    is_waiting = threading.Event()

    def take_second() -> None:
        with exclusive(tmp_path / "lock", on_wait=is_waiting.set):
            order.append("second")

    with exclusive(tmp_path / "lock", on_wait=lambda: None):
        second = threading.Thread(target=take_second)
        second.start()
        assert is_waiting.wait(timeout=10)
        order.append("first")
    second.join(timeout=10)

    assert order == ["first", "second"]


def test_copy_of_the_descriptor_keeps_the_lock(tmp_path: Path) -> None:
    attempts: list[int] = []

    with exclusive(tmp_path / "lock", on_wait=lambda: None) as descriptor:
        copy = os.dup(descriptor)

    def let_go_at_the_second_attempt() -> None:
        attempts.append(1)
        if len(attempts) == 2:
            os.close(copy)

    with exclusive(tmp_path / "lock", on_wait=let_go_at_the_second_attempt):
        assert len(attempts) == 2
