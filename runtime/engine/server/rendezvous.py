"""The `bootstrap_*` fields that a router writes into both halves of a disaggregated request."""

from __future__ import annotations

from typing import Any

from runtime.engine.request import Rendezvous
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields, is_integer
from runtime.engine.settings import EngineSettings, Mode

_MAX_ROOM = 2**63 - 1
_MAX_HOST_LEN = 255


def read_rendezvous(
    body: Fields, settings: EngineSettings, *, num_prompts: int, num_choices: int = 1
) -> tuple[Rendezvous | None, ...]:
    """One rendezvous per sequence, prompt by prompt; all None in unified mode, where the fields are ignored.

    Each field is one value for all, or a list with one value per sequence or per prompt. One room for several
    sequences means consecutive rooms: both halves count alike, so they still meet. A null port means
    our own, as in SGLang: with one prefill instance per host the two agree.
    """
    if settings.mode is Mode.UNIFIED:
        return (None,) * (num_prompts * num_choices)
    rooms = _spread(body, "bootstrap_room", num_prompts, num_choices)
    if any(room is None for room, _ in rooms):
        raise RequestError(
            f"`bootstrap_room` is missing: this is a {settings.mode.value} instance, "
            "send the request through the router",
            param="bootstrap_room",
        )
    hosts = _spread(body, "bootstrap_host", num_prompts, num_choices)
    ports = _spread(body, "bootstrap_port", num_prompts, num_choices)
    return tuple(
        Rendezvous(
            bootstrap_host=_host(host),
            bootstrap_port=_port(port, settings.bootstrap_port),
            room=_room(room, offset),
        )
        for (host, _), (port, _), (room, offset) in zip(hosts, ports, rooms, strict=True)
    )


def _spread(body: Fields, key: str, num_prompts: int, num_choices: int) -> list[tuple[Any, int]]:
    """For each sequence its value, and how many sequences before it share that value."""
    value = body.raw(key)
    num_sequences = num_prompts * num_choices
    if not isinstance(value, list):
        return [(value, index) for index in range(num_sequences)]
    if len(value) == num_sequences:
        return [(item, 0) for item in value]
    if len(value) == num_prompts:
        return [(item, index) for item in value for index in range(num_choices)]
    raise RequestError(
        f"`{key}` has {len(value)} values, wanted one for each of the {num_sequences} sequences", param=key
    )


def _host(value: Any) -> str:
    if not isinstance(value, str) or not 0 < len(value) <= _MAX_HOST_LEN:
        raise RequestError.wrong_value("bootstrap_host", value, "a host name or address")
    return value


def _port(value: Any, default: int) -> int:
    if value is None:
        return default
    if not is_integer(value) or not 0 < value < 65536:
        raise RequestError.wrong_value("bootstrap_port", value, "a port from 1 to 65535, or null")
    return value


def _room(value: Any, offset: int) -> int:
    if not is_integer(value) or not 0 <= value <= _MAX_ROOM:
        raise RequestError.wrong_value("bootstrap_room", value, f"an integer from 0 to {_MAX_ROOM}")
    return (value + offset) & _MAX_ROOM
