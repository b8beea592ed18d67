"""Taking the port."""

from __future__ import annotations

import socket

import pytest

from runtime.engine.server.listen import ListenError, listen_on


def test_the_socket_accepts_connections_at_once():
    with listen_on("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()) as client:
        assert client.getpeername() == listener.getsockname()


def test_a_port_somebody_listens_on_is_taken():
    with listen_on("127.0.0.1", 0) as stranger:
        port = stranger.getsockname()[1]
        with pytest.raises(ListenError, match=f"^port 127.0.0.1:{port} is taken$"):
            listen_on("127.0.0.1", port)


def test_a_port_whose_last_connection_lingers_is_free():
    with listen_on("127.0.0.1", 0) as listener:
        address = listener.getsockname()
        client = socket.create_connection(address)
        served, _ = listener.accept()
        served.close()  # first to close: the server's side stays in TIME_WAIT
        assert client.recv(1) == b""
        client.close()
    listen_on(*address).close()


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("192.0.2.1", "can't listen on 192.0.2.1:0: Cannot assign"),
        ("no such host", "`no such host` can't be resolved"),
    ],
)
def test_an_address_that_is_not_ours_is_named(host, words):
    with pytest.raises(ListenError, match=words):
        listen_on(host, 0)
