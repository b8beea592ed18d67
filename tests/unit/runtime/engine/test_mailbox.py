from __future__ import annotations

import threading
import time

from runtime.engine.mailbox import Mailbox


def test_calls_come_out_in_order():
    box = Mailbox()
    seen: list[int] = []
    for number in range(5):
        assert box.post(lambda number=number: seen.append(number))
    for call in box.take(0.0):
        call()
    assert seen == [0, 1, 2, 3, 4]
    assert not box.take(0.0)


def test_a_post_wakes_the_reader():
    box = Mailbox()
    threading.Timer(0.05, box.post, (lambda: None,)).start()
    began_s = time.monotonic()
    assert len(box.take(10.0)) == 1
    assert time.monotonic() - began_s < 5.0


def test_an_empty_box_waits_no_longer_than_told():
    began_s = time.monotonic()
    assert not Mailbox().take(0.05)
    assert time.monotonic() - began_s >= 0.05


def test_a_closed_box_gives_what_it_has_and_takes_nothing():
    box = Mailbox()
    box.post(lambda: None)
    assert len(box.close()) == 1
    assert not box.post(lambda: None)
    assert not box.close()
