"""Calls to a bootstrap server: a prefill rank registers, a decode rank looks a prefill up.

The calls block, for a bounded time. They are never made on the engine thread: an address that swallows
packets must not stop the requests that have other peers.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from urllib.parse import urlencode

from runtime.bootstrap.registry import RankRecord, ServerShape
from runtime.bootstrap.token import Token

CALL_TIMEOUT_S = 5.0
NUM_REGISTER_TRIES = 5
NUM_LOOKUP_TRIES = 15
LOOKUP_PAUSE_S = 1.0
MAX_PAUSE_S = 30.0
MAX_ANSWER_BYTES = 1 << 20


class BootstrapError(Exception):
    """The bootstrap server could not be asked, or said no; the text names its address."""


class TokenRefusedError(BootstrapError):
    """The bootstrap server wants another token: asking again would change nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefillServer:
    """A prefill server as its bootstrap server describes it, and where its leader listens for decode."""

    shape: ServerShape
    rank_ip: str
    rank_port: int


def register_rank(host: str, port: int, record: RankRecord, token: Token | None = None) -> None:
    """Announce a prefill rank: five tries, the pause doubles from one second."""
    pause_s = 1.0
    for tries_left in reversed(range(NUM_REGISTER_TRIES)):
        try:
            _call(host, port, token, "PUT", "/route", json.dumps(asdict(record)))
        except TokenRefusedError:
            raise
        except BootstrapError:
            if not tries_left:
                raise
        else:
            return
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, MAX_PAUSE_S)


def find_prefill(
    host: str, port: int, *, deadline_s: float, stopped: threading.Event, token: Token | None = None
) -> PrefillServer:
    """Ask until the server knows all its ranks: 15 tries a second apart, not beyond `deadline_s` (monotonic).

    `stopped` ends the wait early, when this process closes.
    """
    for tries_left in reversed(range(NUM_LOOKUP_TRIES)):
        try:
            return _look_up(host, port, token)
        except TokenRefusedError:
            raise
        except BootstrapError:
            out_of_time = time.monotonic() + LOOKUP_PAUSE_S > deadline_s
            if not tries_left or out_of_time or stopped.wait(LOOKUP_PAUSE_S):
                raise
    raise AssertionError("the last try returns or raises")


def _look_up(host: str, port: int, token: Token | None) -> PrefillServer:
    shape = _parse_shape(_call(host, port, token, "GET", _route(-1)), where=f"{host}:{port}")
    if shape.attn_cp_size * shape.pp_size != 1:
        raise BootstrapError(
            f"prefill at {host}:{port} splits layers or contexts over ranks (pp_size={shape.pp_size}, "
            f"attn_cp_size={shape.attn_cp_size}), this decode engine speaks to those that split heads alone"
        )
    rank = _call(host, port, token, "GET", _route(0))
    rank_ip, rank_port = rank.get("rank_ip"), rank.get("rank_port")
    if not isinstance(rank_ip, str) or not isinstance(rank_port, int):
        raise BootstrapError(f"bootstrap server {host}:{port} gave no address for rank 0: {rank!r:.120}")
    return PrefillServer(shape=shape, rank_ip=rank_ip, rank_port=rank_port)


def _route(rank: int) -> str:
    names = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")
    return f"/route?{urlencode([(name, rank) for name in names])}"


def _parse_shape(answer: Mapping[str, object], *, where: str) -> ServerShape:
    wanted = {field.name for field in fields(ServerShape)}
    for name in ("attn_tp_size", "attn_cp_size", "dp_size", "pp_size", "page_size"):
        if not isinstance(answer.get(name), int):
            raise BootstrapError(
                f"bootstrap server {where} gave no integer `{name}`, found {answer.get(name)!r:.60}"
            )
    known = {name: answer.get(name) for name in wanted}
    return ServerShape(**known)  # type: ignore[arg-type]  # integers are checked, the rest compared


def _call(
    host: str, port: int, token: Token | None, method: str, path: str, body: str | None = None
) -> dict[str, object]:
    """One HTTP exchange; an answer that is not JSON reads as an empty object."""
    headers = {"Content-Type": "application/json"}
    if token is not None:
        headers["Authorization"] = token.header()
    connection = http.client.HTTPConnection(host, port, timeout=CALL_TIMEOUT_S)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read(MAX_ANSWER_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise BootstrapError(f"bootstrap server {host}:{port} does not answer: {error!r}") from error
    finally:
        connection.close()
    if response.status == 401:
        wanted = "a token, and this engine has none" if token is None else "another token than this engine's"
        raise TokenRefusedError(f"bootstrap server {host}:{port} answered 401: it wants {wanted}")
    if response.status != 200:
        said = text[:200].decode(errors="replace")
        raise BootstrapError(f"bootstrap server {host}:{port} answered {response.status}: {said}")
    try:
        parsed = json.loads(text)
    except ValueError:
        return {}
    return parsed if isinstance(parsed, dict) else {}
