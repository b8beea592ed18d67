from __future__ import annotations

from runtime.engine.page_share import PageShare


def _share(num_receivers: int = 2) -> PageShare[str]:
    return PageShare(100, num_receivers=lambda: num_receivers)


def test_a_lone_receiver_may_fill_the_pool():
    share = _share(num_receivers=1)
    assert [share.add(1, name, 25) for name in "abcd"] == [["a"], ["b"], ["c"], ["d"]]
    assert share.add(1, "e", 25) == []


def test_one_of_several_may_fill_half_and_the_rest_goes_on():
    share = _share()
    assert [share.add(1, name, 25) for name in "abc"] == [["a"], ["b"], []]
    assert share.add(2, "x", 25) == ["x"]
    assert share.remove("a") == ["c"]


def test_order_within_a_receiver_is_kept():
    share = _share()
    share.add(1, "a", 40)
    assert share.add(1, "large", 45) == []
    assert share.add(1, "small", 1) == []
    assert share.remove("a") == ["large", "small"]


def test_a_first_item_always_goes_however_large():
    assert _share().add(1, "huge", 99) == ["huge"]


def test_an_item_that_waits_can_be_withdrawn():
    share = _share()
    share.add(1, "a", 50)
    share.add(1, "b", 30)
    share.add(1, "c", 20)
    assert share.remove("b") == []
    assert share.remove("a") == ["c"]
    assert share.remove("nobody") == []
