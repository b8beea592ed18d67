"""Reads the few fields of a request body that the router must know, and writes the rendezvous into it.

The body is not rebuilt: the three fields are put before its closing brace, so the workers get the client's
own bytes: long prompts are not serialised again, and numbers keep the precision they were written with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import orjson

MAX_SEQUENCES = 4096  # `n` is a number a client writes; each sequence costs a room on both sides

RENDEZVOUS_FIELDS = ("bootstrap_host", "bootstrap_port", "bootstrap_room")

Json = Mapping[str, object]


class BodyError(Exception):
    """The client's fault; the text is for the client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestBody:
    raw: bytes  # a valid JSON object without the rendezvous fields
    is_empty: bool
    num_sequences: int | None  # None for a single one, whose rendezvous is not a list
    wants_stream: bool
    wants_prompt_logprobs: bool


def read_body(path: str, raw: bytes) -> RequestBody:
    """Check that `raw` is a JSON object and look into it. Raises BodyError."""
    try:
        parsed = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BodyError(f"the body is not valid JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise BodyError(f"the body must be a JSON object, found {type(parsed).__name__}")
    document = cast(dict[str, object], parsed)
    if any(field in document for field in RENDEZVOUS_FIELDS):
        document = {key: value for key, value in document.items() if key not in RENDEZVOUS_FIELDS}
        raw = orjson.dumps(document)
    wants_stream = bool(document.get("stream"))
    return RequestBody(
        raw=raw,
        is_empty=not document,
        num_sequences=_num_sequences(path, document),
        wants_stream=wants_stream,
        wants_prompt_logprobs=path == "/generate"
        and not wants_stream
        and bool(document.get("return_logprob")),
    )


def with_rendezvous(body: RequestBody, *, host: str, port: int | None, rooms: list[int]) -> bytes:
    """The body with bootstrap host, port and room; lists of `len(rooms)` when the request is a batch."""
    if body.num_sequences is None:
        fields = orjson.dumps({"bootstrap_host": host, "bootstrap_port": port, "bootstrap_room": rooms[0]})
    else:
        fields = orjson.dumps(
            {
                "bootstrap_host": [host] * len(rooms),
                "bootstrap_port": [port] * len(rooms),
                "bootstrap_room": rooms,
            }
        )
    # In a valid object nothing but white space follows the last brace, so it is the closing one.
    kept = body.raw[: body.raw.rindex(b"}")]
    return kept + (b"" if body.is_empty else b",") + fields[1:]


def _num_sequences(path: str, document: Json) -> int | None:
    """How many sequences the worker will make of this request, None for one that is not written as a list.

    SGLang's rule: lists for a list of prompts or for `n` above 1, in the order prompt by prompt.
    """
    num_prompts = _num_prompts(path, document)
    num_samples = _num_samples(path, document)
    if num_prompts is None and num_samples == 1:
        return None
    num_sequences = (num_prompts or 1) * num_samples
    if num_sequences > MAX_SEQUENCES:
        raise BodyError(f"the request asks for {num_sequences} sequences, at most {MAX_SEQUENCES} are taken")
    return num_sequences


def _num_prompts(path: str, document: Json) -> int | None:
    if path == "/v1/chat/completions":
        return None
    if path == "/v1/completions":
        return _list_len(document.get("prompt"))
    text = _list_len(document.get("text"))
    return text if text is not None else _list_len(document.get("input_ids"))


def _list_len(prompt: object) -> int | None:
    """The length of a list of prompts; a flat list of token ids is one prompt, an empty list none."""
    if not isinstance(prompt, list):
        return None
    items = cast(list[object], prompt)
    return len(items) if items and isinstance(items[0], (str, list)) else None


def _num_samples(path: str, document: Json) -> int:
    """`n` of the OpenAI routes. That of `/generate` the worker resolves, counting on from one room."""
    n = document.get("n") if path != "/generate" else None
    return n if isinstance(n, int) and n > 1 else 1
