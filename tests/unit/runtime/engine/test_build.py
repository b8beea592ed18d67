"""Starting an engine: what is refused, in which words, and that a failed start leaves nothing behind."""

from __future__ import annotations

import socket
import threading

import pytest

from runtime.engine.ranks.opening import EngineStartError, advertised_host
from runtime.engine.request import FinishReason
from runtime.engine.settings import Mode


def test_a_taken_bootstrap_port_is_named_and_nothing_stays_behind(start_toy):
    before = threading.active_count()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(EngineStartError, match=f"cannot serve the bootstrap port 127.0.0.1:{port}"):
            start_toy(Mode.PREFILL, bootstrap_port=port)
    assert threading.active_count() == before


def test_an_unknown_backend_is_told_the_known_ones(start_toy):
    with pytest.raises(EngineStartError, match="unknown transfer backend `pigeon`, known: "):
        start_toy(Mode.DECODE, transfer_backend="pigeon")


def test_a_foreign_address_is_refused(start_toy):
    with pytest.raises(EngineStartError, match="cannot open the transfer backend"):
        start_toy(Mode.DECODE, host="192.0.2.1")


def test_unified_mode_opens_no_port(start_toy):
    before = threading.active_count()
    start_toy(Mode.UNIFIED, transfer_backend="pigeon", host="192.0.2.1")
    assert threading.active_count() == before + 1


@pytest.mark.parametrize("host", ["127.0.1.3", "::1", "localhost"])
def test_any_local_address_will_do(start_pair, host):
    pair = start_pair(host=host)
    at = pair.meeting()
    pair.prefill.ask([1, 2, 3], at=at)
    answer = pair.decode.ask([1, 2, 3], at=at)
    assert answer.finish().reason is FinishReason.LENGTH


def test_an_address_is_advertised_as_it_is_and_a_wildcard_as_a_real_one():
    assert advertised_host("127.0.1.3") == "127.0.1.3"
    for wildcard in ("", "0.0.0.0", "::"):
        assert advertised_host(wildcard) not in ("", "0.0.0.0", "::")
