"""What a caller did wrong, or what went wrong for them, as one exception and one JSON form."""

from __future__ import annotations

import orjson

_TYPES = {
    404: "not_found_error",
    405: "invalid_request_error",
    413: "request_too_large_error",
    503: "service_unavailable_error",
}


class RequestError(Exception):
    """A request that gets an error answer. 4xx tells a router not to retry; 500 and 503 invite it to."""

    def __init__(self, message: str, *, status: int = 400, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param

    @classmethod
    def wrong_value(cls, name: str, found: object, wanted: str) -> RequestError:
        """Say which field is wrong, what it holds and what it should hold."""
        return cls(f"`{name}` is {shown(found)}, wanted {wanted}", param=name)


def error_body(error: RequestError) -> bytes:
    """OpenAI's error object; SGLang's clients read the same `error.message` from `/generate`."""
    kind = _TYPES.get(
        error.status, "invalid_request_error" if error.status < 500 else "internal_server_error"
    )
    return orjson.dumps(
        {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.status}}
    )


def shown(value: object, *, max_len: int = 60) -> str:
    """A value of the caller's as JSON, short enough for a message."""
    try:
        text = orjson.dumps(value).decode()
    except TypeError:  # not JSON: a value of ours, never a body's
        text = repr(value)
    return text if len(text) <= max_len else f"{text[: max_len - 1]}…"
