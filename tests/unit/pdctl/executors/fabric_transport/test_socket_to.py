from __future__ import annotations

import socket

import pytest

from pdctl.executors.fabric_transport.socket_to import MISSED_KEEPALIVES, connect_tcp
from pdctl.executors.shell import UnreachableError


def test_small_messages_do_not_wait_and_a_cut_is_noticed():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with connect_tcp("127.0.0.1", port, family="any", timeout_s=5.0, keepalive_s=3.0) as made:
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            unacknowledged_ms = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert unacknowledged_ms == 3000 * MISSED_KEEPALIVES
            assert made.gettimeout() is None


def test_a_refused_connection_and_an_unknown_name_are_told_apart():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    for host, code in (("127.0.0.1", "PD516"), ("no-such-host.invalid", "PD515"), ("a..b", "PD515")):
        with pytest.raises(UnreachableError) as caught:
            connect_tcp(host, port, family="any", timeout_s=5.0, keepalive_s=5.0)
        assert caught.value.code == code


def test_the_family_that_the_configuration_names_is_the_only_one():
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(UnreachableError):
        connect_tcp("127.0.0.1", server.getsockname()[1], family="inet6", timeout_s=5.0, keepalive_s=5.0)
