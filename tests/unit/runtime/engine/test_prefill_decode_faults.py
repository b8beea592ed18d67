"""What becomes of a disaggregated request when a side fails: a quick end, in words, and no trace."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from runtime.control.messages import (
    PROTOCOL_VERSION,
    AbortRoom,
    Hello,
    OpenRoom,
    Refused,
    RoomDone,
    RoomState,
    Welcome,
)
from runtime.control.rooms import KVPoll
from runtime.engine.ranks.ways import Endpoints
from runtime.engine.request import FinishReason
from runtime.engine.settings import Mode


@pytest.mark.parametrize("side", ["prefill", "decode"])
@pytest.mark.parametrize("moment", ["handshake", "transfer"])
def test_an_abort_on_one_side_ends_the_other(start_pair, side, moment):
    pair = start_pair(chunked_prefill_size=4)
    pair.prefill.runner.step_s = 0.02
    if moment == "handshake":  # every page of decode is taken, so the room cannot open
        blocker = pair.decode.ask([1], rid="blocker", max_new_tokens=300)
        pair.decode.runner.step_s = 0.01
        assert blocker.started.wait(5)
        filler = pair.decode.ask(range(90), rid="filler", max_new_tokens=50)
        assert filler.started.wait(5)
    ours, theirs = pair.ask(range(120), max_new_tokens=100)
    wanted = "num_handshaking" if moment == "handshake" else "num_transferring"
    pair.decode.wait_until(lambda: getattr(pair.decode.engine.stats(), wanted) == 1)
    pair.prefill.wait_until(lambda: getattr(pair.prefill.engine.stats(), wanted) == 1)
    getattr(pair, side).engine.abort(f"room-{pair.next_room - 1}")
    if moment == "handshake":
        pair.decode.engine.abort("blocker")
        pair.decode.engine.abort("filler")
    for answer in (ours, theirs):
        finish = answer.finish()
        assert finish.reason is FinishReason.ABORT
        assert "aborted" in (finish.message or "")
    pair.assert_empty()


def test_an_abort_while_decoding_leaves_the_finished_prefill_alone(start_pair):
    pair = start_pair()
    pair.decode.runner.step_s = 0.01
    ours, theirs = pair.ask(range(10), max_new_tokens=200)
    assert theirs.started.wait(5)
    assert ours.finish().reason is FinishReason.LENGTH
    pair.decode.engine.abort("room-1000")
    assert theirs.finish().reason is FinishReason.ABORT
    pair.assert_empty()


def test_decode_ends_at_once_when_prefill_dies_and_serves_others_on(start_toy, start_pair):
    pair = start_pair(chunked_prefill_size=4)
    other = type(pair)(start_toy(Mode.PREFILL), pair.decode, 5000)
    pair.prefill.runner.step_s = 0.05
    _, theirs = pair.ask(range(100))
    pair.decode.wait_until(lambda: pair.decode.engine.stats().num_transferring == 1)
    pair.prefill.engine.close()
    finish = theirs.finish(2.0)
    assert finish.status == 503
    assert "the prefill instance 127.0.0.1:" in (finish.message or "")
    _, after = other.ask([1, 2, 3])
    assert after.finish().reason is FinishReason.LENGTH
    pair.decode.assert_empty()


def test_prefill_ends_at_once_when_decode_dies_and_serves_others_on(start_toy, start_pair):
    pair = start_pair(chunked_prefill_size=4)
    pair.prefill.runner.step_s = 0.02
    ours, _ = pair.ask(range(100))
    pair.prefill.wait_until(lambda: pair.prefill.engine.stats().num_transferring == 1)
    pair.decode.engine.close()
    finish = ours.finish(2.0)
    assert finish.status == 503
    pair.prefill.assert_empty()
    other = type(pair)(pair.prefill, start_toy(Mode.DECODE), 5000)
    _, after = other.ask([1, 2, 3])
    assert after.finish().reason is FinishReason.LENGTH
    pair.prefill.assert_empty()


def test_a_dead_prefill_that_comes_back_is_found_again(start_toy, start_pair):
    pair = start_pair()
    pair.ask([1, 2, 3])[1].finish()
    port = pair.prefill.settings.bootstrap_port
    pair.prefill.engine.close()
    pair.decode.wait_until(lambda: pair.decode.engine.stats().extra["num_links"] == 0)
    again = type(pair)(start_toy(Mode.PREFILL, bootstrap_port=port), pair.decode, 5000)
    _, theirs = again.ask([1, 2, 3])
    assert theirs.finish().reason is FinishReason.LENGTH


def test_prefill_gives_up_when_decode_never_comes(start_pair):
    pair = start_pair(bootstrap_timeout_s=0.3)
    finish = pair.prefill.ask([1, 2], at=pair.meeting(5)).finish(2.0)
    assert (finish.status, finish.message) == (503, "no decode instance opened room 5 within 0.3 s")
    pair.prefill.assert_empty()


def test_decode_gives_up_when_its_room_never_comes_to_prefill(start_pair):
    pair = start_pair(bootstrap_timeout_s=0.3)
    finish = pair.decode.ask([1, 2], at=pair.meeting(5)).finish(2.0)
    assert finish.status == 503
    assert "no request for room 5 came within 0.3 s" in (finish.message or "")
    pair.assert_empty()


def test_decode_learns_at_once_that_prefill_had_ended_the_room_before(start_pair):
    pair = start_pair()
    at = pair.meeting()
    ours = pair.prefill.ask([1, 2], rid="gone", at=at)
    pair.prefill.engine.abort("gone")
    ours.finish()
    finish = pair.decode.ask([1, 2], at=at).finish(2.0)
    assert finish.status == 503
    assert "aborted" in (finish.message or "")
    pair.assert_empty()


def test_prefill_learns_at_once_that_decode_refused_the_request(start_pair, toy_layout):
    pair = start_pair(decode_layout=toy_layout(num_pages=10))
    ours, theirs = pair.ask(range(60))
    assert theirs.finish().status == 400
    finish = ours.finish(2.0)
    assert finish.status == 503
    assert "decode gave up" in (finish.message or "")
    pair.assert_empty()


def test_decode_learns_at_once_that_prefill_refused_the_request(start_pair, toy_layout):
    pair = start_pair(prefill_layout=toy_layout(num_pages=10))
    ours, theirs = pair.ask(range(60))
    assert ours.finish().status == 400
    finish = theirs.finish(2.0)
    assert finish.status == 503
    assert "exceeds the maximum allowed length" in (finish.message or "")
    pair.assert_empty()


def test_a_prefill_that_nobody_serves_is_an_error_within_the_time_out(start_pair):
    pair = start_pair(bootstrap_timeout_s=0.5)
    at = pair.meeting()
    pair.prefill.engine.close()
    finish = pair.decode.ask([1], at=at).finish(3.0)
    assert finish.status == 503
    assert f"bootstrap server 127.0.0.1:{at.bootstrap_port} does not answer" in (finish.message or "")
    pair.decode.assert_empty()


def test_an_address_that_swallows_packets_stops_no_other_request(start_pair, meeting_at):
    pair = start_pair(bootstrap_timeout_s=0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts, and never says a word
        hung = pair.decode.ask([1], rid="hung", at=meeting_at("127.0.0.1", silent.getsockname()[1], 1))
        _, theirs = pair.ask([1, 2, 3])
        assert theirs.finish(2.0).reason is FinishReason.LENGTH
        finish = hung.finish(3.0)
    assert finish.status == 503
    assert "could not be reached within 0.5 s" in (finish.message or "")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"page_size": 8}, "prefill has the page size 8, decode 4"),
        ({"num_layers": 2}, "prefill has the KV layout layers=2,kv_heads=2,head_dim=4, decode layers=3"),
        ({"head_dim": 8}, "head_dim=8"),
    ],
)
def test_pools_of_different_shape_are_refused_in_words(start_pair, toy_layout, fields, words):
    pair = start_pair(prefill_layout=toy_layout(**fields))
    ours, theirs = pair.ask([1, 2, 3])
    finish = theirs.finish(2.0)
    assert finish.status == 500
    assert words in (finish.message or "")
    pair.prefill.engine.abort("room-1000")
    ours.finish()
    pair.assert_empty()


def test_prefill_itself_refuses_a_decode_of_different_shape(start_toy, scripted_decode):
    prefill = start_toy(Mode.PREFILL)
    decode = scripted_decode(prefill)
    decode.say(_hello(prefill, page_size=64))
    answer = decode.hear()
    assert isinstance(answer, Refused)
    assert "prefill has the page size 4, decode 64" in answer.reason
    assert decode.ends.get(timeout=5)


def test_two_requests_cannot_have_one_room(start_pair):
    pair = start_pair()
    at = pair.meeting(9)
    for toy in (pair.prefill, pair.decode):
        toy.runner.step_s = 0.02
    ours = pair.prefill.ask(range(60), rid="p1", at=at)
    theirs = pair.decode.ask(range(60), rid="d1", at=at)
    for toy in (pair.prefill, pair.decode):
        finish = toy.ask([1], rid="second", at=at).finish()
        assert (finish.status, finish.message) == (400, "room 9 is in use by another request")
    assert theirs.finish().reason is FinishReason.LENGTH
    assert ours.finish().reason is FinishReason.LENGTH
    pair.assert_empty()


def test_halves_with_different_prompts_are_an_error(start_pair):
    pair = start_pair()
    at = pair.meeting()
    ours = pair.prefill.ask([1, 2, 3], at=at)
    theirs = pair.decode.ask([1, 2, 3, 4], at=at)
    assert ours.finish().message == "prefill counts 3 prompt tokens, decode 4"
    assert "prefill counts 3 prompt tokens, decode 4" in (theirs.finish().message or "")
    pair.assert_empty()


def test_a_damaged_layer_is_named(start_toy, scripted_prefill):
    decode = start_toy(Mode.DECODE)
    prefill = scripted_prefill(decode.model.layout)
    answer = decode.ask([1, 2, 3], at=prefill.meeting(1))
    assert isinstance(prefill.peer.hear(), Hello)
    prefill.peer.say(Welcome(version=1))
    offer = prefill.peer.hear()
    assert isinstance(offer, OpenRoom)
    prefill.peer.say(_done(offer, checksums=(0x2F7C5E3A, 0x5C6F1B2D, 1)))
    finish = answer.finish()
    assert finish.status == 500
    assert "the KV of layer 0, head 0 is not what prefill sent" in (finish.message or "")
    decode.assert_empty()


def test_decode_keeps_pages_until_prefill_can_no_longer_write_to_them(start_toy, scripted_prefill):
    decode = start_toy(Mode.DECODE)
    prefill = scripted_prefill(decode.model.layout)
    answer = decode.ask([1, 2, 3], at=prefill.meeting(1))
    prefill.peer.hear()
    prefill.peer.say(Welcome(version=1))
    offer = prefill.peer.hear()
    assert isinstance(offer, OpenRoom)
    decode.engine.abort("one")
    assert answer.finish().reason is FinishReason.ABORT
    gave_up = prefill.peer.hear()
    assert isinstance(gave_up, AbortRoom)
    assert decode.engine.stats().num_free_pages < decode.engine.stats().num_pages
    prefill.peer.say(_failed(offer, "too late anyway"))
    decode.assert_empty()


def test_late_and_repeated_words_on_a_room_change_nothing(start_toy, scripted_prefill):
    decode = start_toy(Mode.DECODE)
    prefill = scripted_prefill(decode.model.layout)
    answer = decode.ask([1, 2, 3], max_new_tokens=4, at=prefill.meeting(1))
    prefill.peer.hear()
    prefill.peer.say(Welcome(version=1))
    offer = prefill.peer.hear()
    assert isinstance(offer, OpenRoom)
    for message in (_done(offer), _done(offer), _failed(offer, "late"), _done(offer)):
        prefill.peer.say(message)
    assert answer.finish().reason is FinishReason.LENGTH
    assert answer.tokens[0] == 7
    assert len(answer.tokens) == 4
    decode.assert_empty()


def test_kv_that_does_not_arrive_is_an_error_within_the_time_out(start_toy, scripted_prefill):
    decode = start_toy(Mode.DECODE, waiting_timeout_s=0.3)
    prefill = scripted_prefill(decode.model.layout)
    answer = decode.ask([1, 2, 3], at=prefill.meeting(1))
    prefill.peer.hear()
    prefill.peer.say(Welcome(version=1))
    finish = answer.finish(2.0)
    assert finish.status == 503
    assert "did not arrive" in (finish.message or "")
    decode.assert_empty()  # though prefill never says that it has stopped writing


def test_a_peer_that_is_silent_but_connected_is_dead(start_toy, scripted_prefill):
    with socket.create_server(
        ("127.0.0.1", 0)
    ) as stopped:  # as a process under SIGSTOP: accepts, says nothing
        decode = start_toy(Mode.DECODE, heartbeat_interval_s=0.1)
        prefill = scripted_prefill(decode.model.layout, rank_port=stopped.getsockname()[1])
        finish = decode.ask([1], at=prefill.meeting(1)).finish(2.0)
    assert finish.status == 503
    assert "the peer was silent for 0.3 s" in (finish.message or "")
    decode.assert_empty()


def test_a_decode_that_does_not_read_delays_no_other(start_toy, start_pair, scripted_decode, toy_layout):
    # Pages of 32 KiB: a few fill the socket buffers of a receiver that never reads.
    pair = start_pair(
        prefill_layout=toy_layout(num_pages=64, head_dim=256),
        decode_layout=toy_layout(num_pages=80, head_dim=256),
    )
    pair.ask([1])[1].finish()
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        slow = scripted_decode(pair.prefill)
        slow.say(_hello(pair.prefill, num_pages=1000, endpoints=(_endpoint(deaf.getsockname()[1]),)))
        assert isinstance(slow.hear(), Welcome)
        stuck = [_open_room(pair, slow, room, first_page=100 * room) for room in range(6)]
        for n in range(5):
            _, theirs = pair.ask(range(n, n + 60))
            assert theirs.finish(3.0).reason is FinishReason.LENGTH
        assert not any(answer.ended.is_set() for answer in stuck)
        slow.network.close()
        assert all(answer.finish(3.0).status == 503 for answer in stuck)
    pair.assert_empty()


def test_nonsense_on_the_control_port_closes_that_connection_alone(start_pair):
    pair = start_pair()
    pair.ask([1, 2])[1].finish()
    from runtime.bootstrap.client import find_prefill

    found = find_prefill(
        "127.0.0.1", pair.prefill.settings.bootstrap_port, deadline_s=0.0, stopped=threading.Event()
    )
    for nonsense in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 64, b"\x00\x00\x00\x01\x90", os.urandom(500)):
        with socket.create_connection((found.rank_ip, found.rank_port), timeout=5) as sock:
            sock.sendall(nonsense)
            sock.settimeout(5)
            try:
                while sock.recv(4096):
                    pass
            except ConnectionResetError:
                pass
    assert pair.ask([3, 4])[1].finish().reason is FinishReason.LENGTH


def test_a_message_out_of_place_closes_the_link(start_toy, scripted_decode):
    prefill = start_toy(Mode.PREFILL)
    decode = scripted_decode(prefill)
    decode.say(Welcome(version=1))
    assert decode.ends.get(timeout=5)


@pytest.mark.parametrize(
    ("pages", "words"),
    [
        ((1,), "1 pages for 8 prompt tokens, wanted 2"),
        ((1, 1), "twice"),
        ((1, 64), "page 64 of a pool of 64"),
    ],
)
def test_pages_that_cannot_be_are_refused(start_toy, scripted_decode, pages, words):
    prefill = start_toy(Mode.PREFILL)
    decode = scripted_decode(prefill)
    decode.say(_hello(prefill))
    decode.hear()
    decode.say(OpenRoom(room=1, ticket=2, attn_dp_rank=0, prompt_len=8, pages=pages))
    answer = decode.hear()
    assert isinstance(answer, RoomState)
    assert answer.state is KVPoll.Failed
    assert words in answer.reason


def test_abandoned_rooms_leave_no_trace(start_toy, scripted_decode):
    prefill = start_toy(Mode.PREFILL)
    decode = scripted_decode(prefill)
    decode.say(_hello(prefill))
    decode.hear()
    for room in range(10_000):
        decode.say(OpenRoom(room=room, ticket=room + 1, attn_dp_rank=0, prompt_len=4, pages=(room % 64,)))
    prefill.wait_until(lambda: prefill.engine.stats().num_handshaking == 10_000)
    decode.network.close()
    prefill.assert_empty()


def test_closed_engines_leave_no_socket_and_no_thread(start_pair):
    def count() -> tuple[int, int]:
        return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    warm = start_pair()
    warm.ask([1])[1].finish()
    warm.decode.engine.close()
    warm.prefill.engine.close()
    before = count()
    pair = start_pair()
    for n in range(10):
        pair.ask(range(n, n + 30))[1].finish()
    pair.decode.engine.close()
    pair.prefill.engine.close()
    deadline_s = time.monotonic() + 3.0  # look-up threads end on their own, a moment later
    while count() != before and time.monotonic() < deadline_s:
        time.sleep(0.02)
    assert count() == before


def _hello(prefill, **fields):
    layout = prefill.model.layout
    known = {
        "version": PROTOCOL_VERSION,
        "backend": "tcp",
        "attn_tp_size": 1,
        "attn_dp_size": 1,
        "num_layers": layout.num_layers,
        "num_pages": layout.num_pages,
        "page_size": layout.page_size,
        "num_kv_heads": layout.num_kv_heads,
        "head_dim": layout.head_dim,
        "dtype": "float32",
        "endpoints": (_endpoint(9),),
        "verify_kv": False,
    }
    return Hello(**(known | fields))


def _endpoint(port: int) -> bytes:
    return Endpoints(backend=f'["127.0.0.1", {port}]'.encode(), staging=None).pack()


def _open_room(pair, slow, room: int, first_page: int):
    """A request of 60 tokens whose decode half is scripted."""
    answer = pair.prefill.ask(range(60), rid=f"slow-{room}", at=pair.meeting(room))
    slow.say(
        OpenRoom(
            room=room,
            ticket=room + 1,
            attn_dp_rank=0,
            prompt_len=60,
            pages=tuple(range(first_page, first_page + 15)),
        )
    )
    return answer


def _done(offer: OpenRoom, checksums: tuple[int, ...] | None = None) -> RoomDone:
    return RoomDone(
        room=offer.room,
        ticket=offer.ticket,
        prompt_len=offer.prompt_len,
        first_token=7,
        logprob=None,
        top_logprobs=(),
        checksums=checksums,
    )


def _failed(offer: OpenRoom, reason: str) -> RoomState:
    return RoomState(room=offer.room, ticket=offer.ticket, state=KVPoll.Failed, reason=reason)
