"""A port that accepts connections, and a thread for each of them."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable

from runtime.sockets import notice_vanished_peer, open_listener
from runtime.transfer.wire.frames import FrameError, PeerClosed, cut

MAX_CONNECTIONS = 1024

_log = logging.getLogger(__name__)


class Connections:
    """Runs `serve` on a thread of its own for each connection, until it returns, raises, or `close`."""

    def __init__(self, host: str, serve: Callable[[socket.socket], None]) -> None:
        self._serve = serve
        self._threads: dict[socket.socket, threading.Thread] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._listener = open_listener(host, 0, backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="kv-accept", daemon=True)
        self._thread.start()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            threads = [self._thread, *self._threads.values()]
            for sock in (self._listener, *self._threads):
                cut(sock)
        for thread in threads:
            thread.join()

    def _accept(self) -> None:
        with self._listener:
            while True:
                try:
                    sock, _ = self._listener.accept()
                except OSError:  # the listener was cut by `close`, or the process is out of descriptors
                    if self._closed:
                        return
                    _log.exception("cannot accept a KV connection")
                    continue
                self._start(sock)

    def _start(self, sock: socket.socket) -> None:
        with self._lock:
            if self._closed or len(self._threads) >= MAX_CONNECTIONS:
                _log.warning("refusing a KV connection: %d are open", len(self._threads))
                sock.close()
                return
            thread = threading.Thread(target=self._run, args=(sock,), name="kv-receive", daemon=True)
            self._threads[sock] = thread
            thread.start()

    def _run(self, sock: socket.socket) -> None:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            notice_vanished_peer(sock, also_unanswered=True)  # receivers send nothing but short answers
            self._serve(sock)
        except PeerClosed:
            _log.debug("a KV connection ended")
        except (OSError, FrameError) as error:
            _log.warning("a KV connection failed: %s", error)
        finally:
            with self._lock:
                del self._threads[sock]
            sock.close()
