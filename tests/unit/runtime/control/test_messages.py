"""The control messages: they arrive as they left, and nothing else arrives at all."""

from __future__ import annotations

from contextlib import suppress

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.control.messages import (
    LENGTH,
    MAX_TEXT_LEN,
    AbortDone,
    AbortRoom,
    Hello,
    Message,
    MessageError,
    OpenRoom,
    Ping,
    RankUp,
    Refused,
    Reported,
    RoomDone,
    RoomState,
    Welcome,
    pack_message,
    unpack_message,
)
from runtime.control.rooms import KVPoll

_HELLO = Hello(
    version=1,
    backend="tcp",
    attn_tp_size=2,
    attn_dp_size=1,
    num_layers=30,
    num_pages=100,
    page_size=16,
    num_kv_heads=3,
    head_dim=64,
    dtype="float32",
    endpoints=(b"\x00\xff", b""),
    verify_kv=True,
)
_DONE = RoomDone(
    room=5,
    ticket=6,
    prompt_len=7,
    first_token=8,
    logprob=-0.25,
    top_logprobs=((1, -0.5), (2, -1.5)),
    checksums=(0, 2**32 - 1),
)
_MESSAGES = [
    _HELLO,
    Welcome(version=1),
    Refused(reason="wrong page size"),
    OpenRoom(room=2**63 - 1, ticket=0, attn_dp_rank=3, prompt_len=33, pages=(0, 5, 2**31 - 1)),
    AbortRoom(room=1, ticket=None, reason=""),
    AbortRoom(room=1, ticket=2, reason="äöü"),
    AbortDone(room=1, ticket=2),
    RoomState(room=1, ticket=2, state=KVPoll.Failed, reason="why"),
    _DONE,
    RoomDone(room=5, ticket=6, prompt_len=7, first_token=8, logprob=None, top_logprobs=(), checksums=None),
    Ping(),
    RankUp(tp_rank=3, token=2**63 - 1),
    Reported(report_id=1, num_bytes=2**40, reason=None),
    Reported(report_id=2, num_bytes=0, reason="gone"),
]


@pytest.mark.parametrize("message", _MESSAGES, ids=lambda message: type(message).__name__)
def test_a_message_arrives_as_it_left(message):
    frame = pack_message(message)
    assert LENGTH.unpack(frame[: LENGTH.size]) == (len(frame) - LENGTH.size,)
    assert unpack_message(frame[LENGTH.size :]) == message


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        (["hullo"], "unknown message `hullo`"),
        ([], "not a message"),
        ([5], "not a message"),
        ("text", "not a message"),
        (["ping", 1], "`ping` has 1 fields, wanted 0"),
        (["welcome", -1], "`welcome.version`: found -1"),
        (["welcome", True], "found True"),
        (["welcome", 1.0], "found 1.0"),
        (["refused", "x" * (MAX_TEXT_LEN + 1)], "`refused.reason`"),
        (["refused", b"bytes"], "`refused.reason`"),
        (["open_room", 2**63, 1, 0, 1, [1]], "`open_room.room`"),
        (["open_room", 1, None, 0, 1, [1]], "`open_room.ticket`"),
        (["open_room", 1, 1, 0, 0, [1]], "`open_room.prompt_len`"),
        (["open_room", 1, 1, 0, 1, [1, "2"]], "`open_room.pages`"),
        (["open_room", 1, 1, 0, 1, 5], "`open_room.pages`"),
        (["room_state", 1, 1, 9, ""], "`room_state.state`"),
        (["room_done", 1, 1, 1, 1, "x", [], None], "`room_done.logprob`"),
        (["room_done", 1, 1, 1, 1, None, [[1]], None], "`room_done.top_logprobs`"),
        (["room_done", 1, 1, 1, 1, None, [], [2**32]], "`room_done.checksums`"),
    ],
)
def test_a_wrong_field_is_named(parts, words):
    with pytest.raises(MessageError) as caught:
        unpack_message(msgpack.packb(parts))
    assert words in str(caught.value)


@given(st.binary(max_size=200))
def test_random_bytes_are_a_message_or_an_error(body):
    with suppress(MessageError):
        assert isinstance(unpack_message(body), Message)


@given(st.sampled_from(_MESSAGES), st.data())
def test_a_torn_or_changed_frame_is_a_message_or_an_error(message, data):
    body = bytearray(pack_message(message)[LENGTH.size :])
    position = data.draw(st.integers(0, len(body) - 1))
    body[position] = data.draw(st.integers(0, 255))
    with suppress(MessageError):
        assert isinstance(unpack_message(bytes(body[: data.draw(st.integers(0, len(body)))])), Message)


@pytest.mark.parametrize("start", [b"\xdd", b"\xdf", b"\xc6", b"\xdb"])  # array, map, bytes, text
def test_lengths_that_lie_cost_nothing(start):
    with pytest.raises(MessageError):
        unpack_message(start + b"\xff\xff\xff\xff")


def test_depth_does_not_reach_the_stack():
    with pytest.raises(MessageError):
        unpack_message(b"\x91" * 5000)


def test_the_largest_room_fits_a_frame():
    pages = tuple(range(2**31 - 2**21, 2**31))
    frame = pack_message(
        OpenRoom(room=2**63 - 1, ticket=2**63 - 1, attn_dp_rank=0, prompt_len=2**21, pages=pages)
    )
    assert unpack_message(frame[LENGTH.size :]).pages == pages
