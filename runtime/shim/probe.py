"""The verb `probe`: HTTP requests sent from the node itself, all at once, each with a hard time limit."""

from __future__ import annotations

import time

from .http import HttpError, exchange
from .record import RequestError
from .sockets import socket
from .threads import begin

MAX_REQUESTS = 1024
DEFAULT_TIMEOUT_S = 5.0


def probe(requests: object) -> list[dict]:
    """One `{"status", "body", "error", "elapsed_s"}` per request, in their order."""
    if not isinstance(requests, list) or len(requests) > MAX_REQUESTS:
        raise RequestError("`requests` is not a list of at most %d" % MAX_REQUESTS)
    exchanges = [Exchange(request) for request in requests]
    return [each.wait() for each in exchanges]


class Exchange:
    """One request on its own thread; one that hangs in the resolver is left behind by `wait`."""

    def __init__(self, request: object) -> None:
        if not isinstance(request, dict) or not isinstance(request.get("url"), str):
            raise RequestError("a probe has no `url`")
        self._url = request["url"]
        self._method = request.get("method") or "GET"
        self._body = request.get("body")
        self._timeout_s = float(request.get("timeout_s") or DEFAULT_TIMEOUT_S)
        self._started = time.monotonic()
        self._answer: dict | None = None
        self._ended = begin(self._run)

    def wait(self) -> dict:
        self._ended.acquire(timeout=max(0.0, self._started + self._timeout_s - time.monotonic()))
        answer = self._answer or _failure("no answer within %g s" % self._timeout_s)
        return dict(answer, elapsed_s=round(answer.get("elapsed_s") or time.monotonic() - self._started, 4))

    def _run(self) -> None:
        body = None if self._body is None else str(self._body).encode()
        try:
            status, text = exchange(self._url, self._method, body, self._started + self._timeout_s)
            answer = {"status": status, "body": text.decode("utf-8", "replace"), "error": None}
        except socket.timeout:
            answer = _failure("no answer within %g s" % self._timeout_s)
        except ConnectionRefusedError:
            answer = _failure("connection refused")
        except HttpError as error:
            answer = _failure(str(error))
        except OSError as error:
            answer = _failure(error.strerror or str(error))
        except ValueError as error:
            answer = _failure(str(error))
        self._answer = dict(answer, elapsed_s=time.monotonic() - self._started)


def _failure(error: str) -> dict:
    return {"status": None, "body": "", "error": error}
