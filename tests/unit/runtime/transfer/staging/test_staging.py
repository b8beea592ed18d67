"""Staged sends between real ranks: the heads arrive, slots come back, and nobody waits for the dead."""

from __future__ import annotations

import queue
import socket
import struct
import threading
from contextlib import suppress

import msgpack
import pytest

from runtime.kv.reshard import HeadSlice, reshard
from runtime.kv.ring import RingError
from runtime.kv.staging_copy import block_bytes
from runtime.transfer.base import TransferError
from runtime.transfer.staging.messages import MAGIC

_PAGE_OF_ONE_HEAD = 2 * 3 * 4 * 8 * 2


def _slot(num_heads: int, num_pages: int) -> int:
    return _PAGE_OF_ONE_HEAD * num_heads * num_pages


def _slots(pages: list[int], num_tokens: int) -> list[int]:
    return [page * 4 + slot for page in pages for slot in range(4)][:num_tokens]


def _wait_until_free(holder) -> None:
    """Until every slot is back; the test's own time limit ends it."""
    while holder.num_free_slots < holder.num_slots:
        threading.Event().wait(0.01)


@pytest.mark.parametrize(("prefill_tp", "decode_tp", "num_heads"), [(4, 1, 8), (2, 4, 4), (4, 2, 2)])
def test_every_decode_rank_gets_its_heads_through_two_slots(
    open_rank, join, prefill_tp, decode_tp, num_heads
):
    table = reshard(prefill_attn_tp=prefill_tp, decode_attn_tp=decode_tp, num_kv_heads=num_heads)
    senders = [open_rank(table.prefill_heads) for _ in range(prefill_tp)]
    receivers = [open_rank(table.decode_heads) for _ in range(decode_tp)]
    size = _slot(max(one.num_heads for one in table.slices), 2)
    for rank in receivers:
        rank.receive(pool_bytes=2 * size, slot_bytes=size)
    for rank in senders:
        rank.stage(buffer_bytes=2 * size, slot_bytes=size)
    ways = [(one, join(senders[one.prefill_rank], receivers[one.decode_rank], one)) for one in table.slices]
    # Three rooms at once, each of several blocks, the last one ragged.
    rooms = [(1, [0, 1, 2, 3, 9], [5, 6, 1, 0, 2], 18), (2, [4, 7], [10, 11], 8), (3, [8], [23], 1)]
    answers = []
    for ticket, src_pages, dst_pages, num_tokens in rooms:
        for rank in receivers:
            rank.receiver.allow(ticket, rank.window(dst_pages))
        answers += [way.send(ticket, src_pages, dst_pages, num_tokens=num_tokens) for _, way in ways]
    assert [answer.get(timeout=20) for answer in answers] == [None] * len(answers)
    for _, src_pages, dst_pages, num_tokens in rooms:
        src, dst = _slots(src_pages, num_tokens), _slots(dst_pages, num_tokens)
        for one, _ in ways:
            sent = senders[one.prefill_rank].tokens[:, src, one.src_head : one.src_head + one.num_heads]
            landed = receivers[one.decode_rank].tokens[:, dst, one.dst_head : one.dst_head + one.num_heads]
            assert landed.equal(sent)
    for holder in [rank.receiver for rank in receivers] + [rank.sender for rank in senders]:
        _wait_until_free(holder)


@pytest.fixture
def pair(open_rank, join):
    """One rank of two heads, one of four that takes them as its last two; slots of one page."""
    src, dst = open_rank(2), open_rank(4)
    dst.receive(pool_bytes=2 * _slot(2, 1), slot_bytes=_slot(2, 1))
    src.stage(buffer_bytes=2 * _slot(2, 1), slot_bytes=_slot(2, 1))
    heads = HeadSlice(prefill_rank=0, decode_rank=0, src_head=0, dst_head=2, num_heads=2)
    return src, dst, join(src, dst, heads)


def test_a_room_that_is_not_open_changes_nothing(pair):
    src, dst, way = pair
    before = dst.tokens.clone()
    dst.receiver.allow(1, dst.window([3]))
    assert "no_room" in way.send(2, [0], [3]).get(timeout=10)
    assert "outside" in way.send(1, [0], [4]).get(timeout=10)
    assert dst.tokens.equal(before)
    assert way.send(1, [0], [3]).get(timeout=10) is None
    _wait_until_free(dst.receiver)
    _wait_until_free(src.sender)


def test_nothing_is_scattered_after_revoke_is_quiet(pair):
    src, dst, way = pair
    dst.receiver.allow(1, dst.window(range(24)))
    answers = [way.send(1, list(range(24)), list(range(24))) for _ in range(20)]
    answers[0].get(timeout=10)
    quiet = threading.Event()
    dst.receiver.revoke(1, quiet.set)
    assert quiet.wait(10)
    dst.tokens.zero_()
    outcomes = [answer.get(timeout=10) for answer in answers[1:]]
    assert outcomes[-1] is not None
    assert not dst.tokens.any()
    _wait_until_free(dst.receiver)
    _wait_until_free(src.sender)


def test_cancelled_sends_are_answered_and_others_go_out(pair):
    src, dst, way = pair
    for ticket in (1, 2):
        dst.receiver.allow(ticket, dst.window(range(24)))
    doomed = [way.send(1, list(range(24)), list(range(24))) for _ in range(50)]
    kept = way.send(2, [0], [0])
    way.staged.cancel(1)
    assert kept.get(timeout=10) is None
    assert [answer.get(timeout=10) for answer in doomed][-1] == "cancelled"
    _wait_until_free(src.sender)


def test_closing_answers_every_send_and_frees_both_sides(pair):
    src, dst, way = pair
    dst.receiver.allow(1, dst.window(range(24)))
    answers = [way.send(1, list(range(24)), list(range(24))) for _ in range(50)]
    way.close()
    assert [answer.get(timeout=10) for answer in answers][-1] is not None
    assert way.send(1, [0], [0]).get(timeout=10) == "the session is closed"
    _wait_until_free(dst.receiver)
    _wait_until_free(src.sender)


def test_a_receiver_that_is_gone_is_an_answer_not_a_wait(pair):
    src, dst, way = pair
    dst.receiver.allow(1, dst.window(range(24)))
    assert way.send(1, [0], [0]).get(timeout=10) is None
    dst.receiver.close()
    assert way.send(1, [0, 1], [0, 1]).get(timeout=10)
    assert way.send(1, [0, 1], [0, 1]).get(timeout=10)
    _wait_until_free(src.sender)


@pytest.mark.parametrize("backend_name", ["tcp"])
class TestWithoutAFabric:
    """What is the same whatever moves the bytes."""

    def test_a_receiver_that_says_nothing_fails_its_sends_after_the_stall(self, open_rank, join):
        src = open_rank(2)
        src.stage(buffer_bytes=_slot(2, 1), slot_bytes=_slot(2, 1), stall_timeout_s=0.2)
        heads = HeadSlice(prefill_rank=0, decode_rank=0, src_head=0, dst_head=0, num_heads=2)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            plain = src.backend.connect(open_rank(2).backend.endpoint())
            endpoint = msgpack.packb(("127.0.0.1", silent.getsockname()[1], _slot(2, 1)))
            staged = src.sender.connect(endpoint, plain, heads)
            answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            staged.send(1, [0, 1], [0, 1], answers.put)
            assert "made no progress for 0.2 s" in (answers.get(timeout=10) or "")
            staged.close()
            staged.join(10)

    def test_one_receiver_that_stands_still_leaves_slots_to_others(self, open_rank, join):
        src, dst = open_rank(2), open_rank(2)
        src.stage(buffer_bytes=4 * _slot(2, 1), slot_bytes=_slot(2, 1), stall_timeout_s=30)
        dst.receive(pool_bytes=2 * _slot(2, 1), slot_bytes=_slot(2, 1))
        dst.receiver.allow(1, dst.window(range(24)))
        heads = HeadSlice(prefill_rank=0, decode_rank=0, src_head=0, dst_head=0, num_heads=2)
        way = join(src, dst, heads)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            endpoint = msgpack.packb(("127.0.0.1", silent.getsockname()[1], _slot(2, 1)))
            stuck = src.sender.connect(endpoint, way.plain, heads)
            answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            stuck.send(1, list(range(24)), list(range(24)), answers.put)
            assert way.send(1, list(range(24)), list(range(24))).get(timeout=10) is None
            stuck.close()
            assert answers.get(timeout=10) == "the session was closed"
            stuck.join(10)

    @pytest.mark.parametrize(
        "junk",
        [
            b"GET / HTTP/1.1\r\n\r\n",
            MAGIC + b"\x09" + bytes(8),
            MAGIC + struct.pack("!BQ", 3, 7),  # dropped, never wanted
            MAGIC + 2 * struct.pack("!BQ", 1, 7),  # wanted twice
            MAGIC + struct.pack("!BQ", 1, 7) + struct.pack("!BQQIIII", 2, 7, 1, 0, 2, 4, 1 << 30),
            MAGIC + struct.pack("!BQ", 1, 7) + struct.pack("!BQQIIIII", 2, 7, 1, 0, 2, 1 << 31, 1, 0),
            MAGIC + struct.pack("!BQ", 1, 7) + struct.pack("!BQQIIIII", 2, 7, 1, 3, 2, 4, 1, 0),
        ],
    )
    def test_a_sender_that_talks_nonsense_is_cut_off_and_its_slots_come_back(self, open_rank, junk):
        dst = open_rank(4)
        receiver = dst.receive(pool_bytes=_slot(2, 1), slot_bytes=_slot(2, 1))
        before = dst.tokens.clone()
        receiver.allow(1, dst.window(range(24)))
        host, port, _ = msgpack.unpackb(receiver.endpoint())
        with socket.create_connection((host, port)) as sock:
            sock.sendall(junk)
            with suppress(ConnectionResetError):
                while sock.recv(100):
                    pass
        _wait_until_free(receiver)
        assert dst.tokens.equal(before)

    def test_a_pool_too_small_for_one_block_is_told_with_the_size_needed(self, open_rank):
        with pytest.raises(RingError, match="1000 bytes holds no block of 2000 bytes"):
            open_rank(2).receive(pool_bytes=1000, slot_bytes=2000)

    def test_a_block_too_small_for_one_page_is_told_with_the_size_needed(self, open_rank):
        src = open_rank(2)
        need = block_bytes(src.pool.layout, num_heads=2, num_tokens=4)
        sender = src.stage(buffer_bytes=need - 1, slot_bytes=need - 1)
        heads = HeadSlice(prefill_rank=0, decode_rank=0, src_head=0, dst_head=0, num_heads=2)
        with pytest.raises(TransferError, match=f"has {need - 1} bytes, 2 heads of one page take {need}"):
            sender.connect(msgpack.packb(("127.0.0.1", 1, need)), None, heads)

    @pytest.mark.parametrize("endpoint", [b"", b"\xff", b"{}", b"\x93\x01\x02\x03"])
    def test_an_endpoint_that_is_none_is_told_at_once(self, open_rank, endpoint):
        sender = open_rank(2).stage(buffer_bytes=10_000, slot_bytes=10_000)
        heads = HeadSlice(prefill_rank=0, decode_rank=0, src_head=0, dst_head=0, num_heads=2)
        with pytest.raises(TransferError, match="not an endpoint of a staging pool"):
            sender.connect(endpoint, None, heads)
