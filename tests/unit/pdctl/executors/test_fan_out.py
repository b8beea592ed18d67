"""Many at a time: bounded, in order, and nobody waits for the dead."""

from __future__ import annotations

import threading

import pytest

from pdctl.executors.fan_out import at_once


def test_answers_come_in_the_order_of_the_items():
    assert at_once(lambda number: number * number, range(100), fan_out=7) == [n * n for n in range(100)]
    assert at_once(lambda number: number, [], fan_out=7) == []


def test_what_an_item_raises_is_its_answer_and_hides_no_other():
    def ask(number: int) -> int:
        if number == 2:
            raise ValueError("two")
        return number

    first, second, *others = at_once(ask, range(1, 5))
    assert (first, str(second), others) == (1, "two", [3, 4])


@pytest.mark.parametrize("fan_out", [1, 4])
def test_no_more_than_the_fan_out_work_at_the_same_time(fan_out):
    guard, inside, most = threading.Lock(), [0], [0]

    def ask(_number: int) -> None:
        with guard:
            inside[0] += 1
            most[0] = max(most[0], inside[0])
        threading.Event().wait(0.01)
        with guard:
            inside[0] -= 1

    at_once(ask, range(20), fan_out=fan_out)
    assert most[0] == fan_out


def test_slow_ones_give_their_place_to_the_next():
    """More dead nodes than places, all of them first: the living are asked all the same."""
    is_over = threading.Event()

    def ask(number: int) -> int:
        if number < 8:
            assert is_over.wait(20)
        elif number == 19:
            is_over.set()
        return number

    assert at_once(ask, range(20), fan_out=4, slow_after_s=0.01) == list(range(20))
