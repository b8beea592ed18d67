"""One HTTP/1.1 exchange, bounded in time and size.

No proxy, no redirect, no TLS: the question is whether this very process answers on this very port.
`http.client` would do it too, but importing it costs more than all the rest of a probe.
"""

from __future__ import annotations

import time

from .sockets import Socket, connect, socket

MAX_HEAD_BYTES = 64 << 10
MAX_BODY_BYTES = 256 << 10
CHUNK_BYTES = 64 << 10


class HttpError(Exception):
    """The URL is none of ours, or what answers does not speak HTTP."""


def exchange(url: str, method: str, body: bytes | None, deadline: float) -> tuple[int, bytes]:
    """Status and body (the first MAX_BODY_BYTES). `socket.timeout` when `deadline` passes (monotonic)."""
    host, port, authority, target = _split(url)
    with connect(host, port, _left_s(deadline)) as connection:
        connection.settimeout(_left_s(deadline))
        connection.sendall(_request(method, target, authority, body))
        answer = Answer(connection, deadline)
        status, fields = answer.read_head()
        while 100 <= status < 200:  # interim: the answer proper follows
            status, fields = answer.read_head()
        return status, answer.read_body(fields)


def _split(url: str) -> tuple[str, int, str, str]:
    """Host, port, the authority as written, and the target."""
    scheme, separator, rest = url.partition("://")
    authority, slash, path = rest.partition("/")
    host, _, port = (
        authority.rpartition(":") if ":" in authority.rpartition("]")[2] else (authority, "", "80")
    )
    if scheme != "http" or not separator or not host or not port.isdigit():
        raise HttpError("`%s` is not an http URL" % url)
    return host.strip("[]"), int(port), authority, slash + path or "/"


def _request(method: str, target: str, authority: str, body: bytes | None) -> bytes:
    head = "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nAccept: */*\r\n" % (method, target, authority)
    if body is not None:
        head += "Content-Type: application/json\r\nContent-Length: %d\r\n" % len(body)
    return head.encode("utf-8") + b"\r\n" + (body or b"")


class Answer:
    """What comes back, read as it is needed."""

    def __init__(self, connection: Socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._unread = b""

    def read_head(self) -> tuple[int, dict[str, str]]:
        lines = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        words = lines[0].split(" ", 2)
        if not words[0].startswith("HTTP/1.") or len(words) < 2 or not words[1].isdigit():
            raise HttpError("not an HTTP answer: `%.60s`" % lines[0])
        fields = (line.partition(":") for line in lines[1:])
        return int(words[1]), {name.strip().lower(): value.strip().lower() for name, _, value in fields}

    def read_body(self, fields: dict[str, str]) -> bytes:
        if fields.get("transfer-encoding", "").endswith("chunked"):
            return self._chunks()
        length = fields.get("content-length")
        return self._exactly(int(length)) if length else self._rest()

    def _chunks(self) -> bytes:
        body = b""
        while len(body) < MAX_BODY_BYTES:
            length = int(self._until(b"\r\n").partition(b";")[0], 16)
            if length == 0:
                break
            body += self._exactly(length)
            self._until(b"\r\n")
        return body[:MAX_BODY_BYTES]

    def _exactly(self, length: int) -> bytes:
        wanted = min(length, MAX_BODY_BYTES)
        while len(self._unread) < wanted:
            if not self._receive():
                raise HttpError("the answer was cut off after %d of %d bytes" % (len(self._unread), length))
        found, self._unread = self._unread[:wanted], self._unread[wanted:]
        return found

    def _rest(self) -> bytes:
        while len(self._unread) < MAX_BODY_BYTES and self._receive():
            pass
        return self._unread[:MAX_BODY_BYTES]

    def _until(self, end: bytes) -> bytes:
        while end not in self._unread:
            if len(self._unread) > MAX_HEAD_BYTES or not self._receive():
                raise HttpError("not an HTTP answer: `%.60s`" % self._unread.decode("latin-1").strip())
        found, _, self._unread = self._unread.partition(end)
        return found

    def _receive(self) -> bool:
        """More bytes; False at the end. A server that drips bytes for ever runs into the deadline, too."""
        self._connection.settimeout(_left_s(self._deadline))
        received = self._connection.recv(CHUNK_BYTES)
        self._unread += received
        return bool(received)


def _left_s(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise socket.timeout
    return left_s
