"""Ask many machines at the same time, so many at once as is good for this one; slow ones hold nobody back."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

FAN_OUT = 32  # machines asked at the same time
SLOW_AFTER_S = 2.0  # then a machine gives its place to the next one: who waits for the dead does no work

Item = TypeVar("Item")
T = TypeVar("T")


def at_once(
    ask: Callable[[Item], T],
    items: Sequence[Item],
    *,
    fan_out: int = FAN_OUT,
    slow_after_s: float = SLOW_AFTER_S,
) -> list[T | Exception]:
    """The answers in the items' order. What `ask` raises is its answer, so that one fault hides no other."""
    if len(items) == 1:
        return [_attempt(ask, items[0])]
    answers: dict[int, T | Exception] = {}
    done: queue.SimpleQueue[tuple[int, T | Exception]] = queue.SimpleQueue()

    def work(index: int) -> None:
        done.put((index, _attempt(ask, items[index])))

    began: dict[int, float] = {}  # of those that count, oldest first
    waiting = iter(range(len(items)))
    is_all_begun = False
    while len(answers) < len(items):
        while not is_all_begun and len(began) < fan_out:
            index = next(waiting, None)
            if index is None:
                is_all_begun = True
                break
            began[index] = time.monotonic()
            # Daemons: an operator who presses Ctrl-C does not wait for the dead.
            threading.Thread(target=work, args=(index,), name=f"ask-{index}", daemon=True).start()
        try:
            index, answer = done.get(timeout=None if is_all_begun else _next_slow_s(began, slow_after_s))
        except queue.Empty:
            began.pop(next(iter(began)))
            continue
        answers[index] = answer
        began.pop(index, None)
    return [answers[index] for index in range(len(items))]


def _next_slow_s(began: dict[int, float], slow_after_s: float) -> float:
    return max(0.0, next(iter(began.values())) + slow_after_s - time.monotonic())


def _attempt(ask: Callable[[Item], T], item: Item) -> T | Exception:
    try:
        return ask(item)
    except Exception as error:  # the boundary of the thread: whoever asked decides what it means
        return error
