"""The bootstrap server over real HTTP: SGLang's routes and status codes, and our client's two calls."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from runtime.bootstrap.client import BootstrapError, TokenRefusedError, find_prefill, register_rank
from runtime.bootstrap.registry import RankRecord
from runtime.bootstrap.server import MAX_BODY_BYTES, BootstrapServer
from runtime.bootstrap.token import Token, read_token

_RECORD = RankRecord(
    rank_ip="127.0.0.9",
    rank_port=4321,
    page_size=16,
    kv_cache_dtype="float32",
    kv_layout="layers=2",
    prefill_http_port=30000,
)
_SHAPE = "/route?prefill_dp_rank=-1&prefill_cp_rank=-1&target_tp_rank=-1&target_pp_rank=-1"
_FIRST = "/route?prefill_dp_rank=0&prefill_cp_rank=0&target_tp_rank=0&target_pp_rank=0"


@pytest.fixture
def server() -> Iterator[BootstrapServer]:
    server = BootstrapServer("127.0.0.1", 0)
    yield server
    server.close()


def _call(server: BootstrapServer, method: str, path: str, body: object = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    text = body if isinstance(body, (bytes, type(None))) else json.dumps(body)
    connection.request(method, path, text)
    response = connection.getresponse()
    answer = response.status, response.read().decode()
    connection.close()
    return answer


def test_health_says_ok(server):
    assert _call(server, "GET", "/health") == (200, "OK")


def test_the_shape_is_503_until_all_ranks_are_there_and_then_sglangs_fields(server):
    assert _call(server, "GET", _SHAPE)[0] == 503
    register_rank("127.0.0.1", server.port, _RECORD)
    status, text = _call(server, "GET", _SHAPE)
    assert status == 200
    assert json.loads(text) == {
        "attn_tp_size": 1,
        "attn_cp_size": 1,
        "dp_size": 1,
        "pp_size": 1,
        "page_size": 16,
        "kv_cache_dtype": "float32",
        "kv_layout": "layers=2",
        "follow_bootstrap_room": True,
        "load_balance_method": "follow_bootstrap_room",
        "prefill_http_port": 30000,
        "decode_allocation_policy": None,
    }


def test_a_rank_is_found_by_its_numbers(server):
    register_rank("127.0.0.1", server.port, _RECORD)
    status, text = _call(server, "GET", _FIRST)
    assert (status, json.loads(text)) == (200, {"rank_ip": "127.0.0.9", "rank_port": 4321})
    assert _call(server, "GET", _FIRST.replace("tp_rank=0", "tp_rank=5"))[0] == 404


@pytest.mark.parametrize(
    "query", ["", "?prefill_dp_rank=0", _FIRST.replace("=0", "=x")[6:], "?engine_rank=0"]
)
def test_a_query_without_its_four_numbers_is_400(server, query):
    assert _call(server, "GET", f"/route{query}")[0] == 400


def test_rooms_map_to_data_parallel_ranks(server):
    assert _call(server, "POST", "/register_dp_rank", {"bootstrap_room": 2**63 - 1, "dp_rank": 3})[0] == 200
    status, text = _call(server, "POST", "/query_dp_ranks", {"bootstrap_rooms": [2**63 - 1, 5]})
    assert (status, json.loads(text)) == (200, {str(2**63 - 1): 3})


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", "/route", b"{"),
        ("PUT", "/route", b"[]"),
        ("PUT", "/route", {"rank_ip": "x"}),
        ("PUT", "/route", b"[" * 100_000),
        ("PUT", "/route", b" " * (MAX_BODY_BYTES + 1)),
        ("POST", "/register_dp_rank", {"bootstrap_room": 1}),
        ("POST", "/register_dp_rank", {"bootstrap_room": -1, "dp_rank": 0}),
        ("POST", "/query_dp_ranks", {}),
        ("POST", "/query_dp_ranks", {"bootstrap_rooms": ["1"]}),
    ],
)
def test_a_bad_body_is_400_and_the_server_lives_on(server, method, path, body):
    assert _call(server, method, path, body)[0] == 400
    assert _call(server, "GET", "/health")[0] == 200


def test_a_taken_port_is_an_error_before_anything_starts(server):
    with pytest.raises(OSError, match="Address already in use"):
        BootstrapServer("127.0.0.1", server.port)


def test_a_closed_server_gives_its_port_back():
    server = BootstrapServer("127.0.0.1", 0)
    server.close()
    server.close()
    again = BootstrapServer("127.0.0.1", server.port)
    again.close()


def test_decode_finds_the_rank_and_the_shape(server):
    register_rank("127.0.0.1", server.port, _RECORD)
    found = find_prefill("127.0.0.1", server.port, deadline_s=0.0, stopped=threading.Event())
    assert (found.rank_ip, found.rank_port, found.shape.page_size) == ("127.0.0.9", 4321, 16)


def test_decode_waits_for_ranks_that_register_late(server):
    late = threading.Timer(0.2, register_rank, ("127.0.0.1", server.port, _RECORD))
    late.start()
    found = find_prefill(
        "127.0.0.1", server.port, deadline_s=time.monotonic() + 5.0, stopped=threading.Event()
    )
    late.join()
    assert found.rank_port == 4321


@pytest.fixture
def guarded(tmp_path) -> Iterator[tuple[BootstrapServer, Token]]:
    file = tmp_path / "token"
    file.write_text("open-sesame\n")
    token = read_token(str(file))
    server = BootstrapServer("127.0.0.1", 0, token)
    yield server, token
    server.close()


def test_who_shows_the_token_registers_and_finds(guarded):
    server, token = guarded
    register_rank("127.0.0.1", server.port, _RECORD, token)
    found = find_prefill("127.0.0.1", server.port, deadline_s=0.0, stopped=threading.Event(), token=token)
    assert found.rank_port == 4321


@pytest.mark.parametrize(
    ("token", "wanted"),
    [
        (None, "a token, and this engine has none"),
        (Token("open-sesam"), "another token than this engine's"),
    ],
)
def test_who_doesnt_show_it_is_refused_at_once_and_told_why(guarded, token, wanted):
    server, _ = guarded
    later_s = time.monotonic() + 60.0
    with pytest.raises(TokenRefusedError, match=f"127.0.0.1:{server.port} answered 401: it wants {wanted}"):
        register_rank("127.0.0.1", server.port, _RECORD, token)
    with pytest.raises(TokenRefusedError, match=wanted):
        find_prefill("127.0.0.1", server.port, deadline_s=later_s, stopped=threading.Event(), token=token)


def test_no_route_but_health_is_open_without_the_token(guarded):
    server, _ = guarded
    assert _call(server, "GET", "/health") == (200, "OK")
    refused = (401, "the token is missing or wrong")
    assert _call(server, "GET", _SHAPE) == refused
    assert _call(server, "POST", "/register_dp_rank", {"bootstrap_room": 1, "dp_rank": 0}) == refused
    assert _call(server, "POST", "/query_dp_ranks", {"bootstrap_rooms": [1]}) == refused
    assert _call(server, "GET", "/nowhere") == refused


def test_a_server_that_splits_layers_is_refused_in_words(server):
    for rank in range(2):
        record = RankRecord(
            pp_size=2,
            pp_rank=rank,
            rank_ip="127.0.0.1",
            rank_port=1,
            page_size=16,
            kv_cache_dtype="float32",
        )
        register_rank("127.0.0.1", server.port, record)
    with pytest.raises(BootstrapError, match="splits layers or contexts over ranks"):
        find_prefill("127.0.0.1", server.port, deadline_s=0.0, stopped=threading.Event())


def test_a_port_that_nobody_serves_is_named():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        port = sock.getsockname()[1]
    with pytest.raises(BootstrapError, match=f"bootstrap server 127.0.0.1:{port} does not answer"):
        find_prefill("127.0.0.1", port, deadline_s=0.0, stopped=threading.Event())


def test_closing_ends_the_wait():
    stopped = threading.Event()
    stopped.set()
    began_s = time.monotonic()
    with pytest.raises(BootstrapError):
        find_prefill("127.0.0.1", 1, deadline_s=began_s + 60.0, stopped=stopped)
    assert time.monotonic() - began_s < 1.0
