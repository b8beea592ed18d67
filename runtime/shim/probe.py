"""The verb `probe`: HTTP requests sent from the node itself, all at once, each with a hard time limit.

No proxy, no redirect, no TLS: the question is whether this very process answers on this very port.
"""

from __future__ import annotations

import http.client
import socket
import threading
import time
from urllib.parse import urlsplit

from .record import RequestError

MAX_REQUESTS = 1024
MAX_BODY_BYTES = 256 << 10
DEFAULT_TIMEOUT_S = 5.0


def probe(requests: object) -> list[dict]:
    """One `{"status", "body", "error", "elapsed_s"}` per request, in their order."""
    if not isinstance(requests, list) or len(requests) > MAX_REQUESTS:
        raise RequestError("`requests` is not a list of at most %d" % MAX_REQUESTS)
    exchanges = [Exchange(request) for request in requests]
    for exchange in exchanges:
        exchange.thread.start()
    return [exchange.wait() for exchange in exchanges]


class Exchange:
    """One request on its own thread; a server that drips bytes for ever is cut off by `wait`."""

    def __init__(self, request: object) -> None:
        if not isinstance(request, dict) or not isinstance(request.get("url"), str):
            raise RequestError("a probe has no `url`")
        self._url = request["url"]
        self._method = request.get("method") or "GET"
        self._body = request.get("body")
        self._timeout_s = float(request.get("timeout_s") or DEFAULT_TIMEOUT_S)
        self._started = time.monotonic()
        self._answer: dict | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)

    def wait(self) -> dict:
        self.thread.join(max(0.0, self._started + self._timeout_s - time.monotonic()))
        answer = self._answer or _failure("no answer within %g s" % self._timeout_s)
        return dict(answer, elapsed_s=round(answer.get("elapsed_s") or time.monotonic() - self._started, 4))

    def _run(self) -> None:
        try:
            answer = self._exchange()
        except socket.timeout:
            answer = _failure("no answer within %g s" % self._timeout_s)
        except ConnectionRefusedError:
            answer = _failure("connection refused")
        except (OSError, ValueError) as error:
            answer = _failure(str(error))
        except http.client.HTTPException as error:
            answer = _failure("not an HTTP answer: %s" % (error or type(error).__name__))
        self._answer = dict(answer, elapsed_s=time.monotonic() - self._started)

    def _exchange(self) -> dict:
        parts = urlsplit(self._url)
        if parts.scheme != "http" or not parts.hostname:
            return _failure("`%s` is not an http URL" % self._url)
        connection = http.client.HTTPConnection(parts.hostname, parts.port or 80, timeout=self._timeout_s)
        try:
            target = (parts.path or "/") + ("?" + parts.query if parts.query else "")
            body = None if self._body is None else str(self._body).encode()
            headers = {"Connection": "close", "Accept": "*/*"}
            if body is not None:
                headers["Content-Type"] = "application/json"
            connection.request(self._method, target, body, headers)
            response = connection.getresponse()
            text = response.read(MAX_BODY_BYTES).decode("utf-8", "replace")
            return {"status": response.status, "body": text, "error": None}
        finally:
            connection.close()


def _failure(error: str) -> dict:
    return {"status": None, "body": "", "error": error}
