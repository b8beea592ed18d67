"""The bootstrap server: SGLang's HTTP routes over the bootstrap table, on a thread of the prefill leader.

PUT  /route              a prefill rank announces itself
GET  /route              the server's shape (all four -1), or one rank's address
POST /register_dp_rank   a prefill attention-DP rank claims a room
POST /query_dp_ranks     a decode rank asks who claimed its rooms
GET  /health             OK

With a token, all but /health want it: anyone who may register can have KV sent elsewhere.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from runtime.bootstrap.registry import (
    MAX_ROOM_ID,
    RegistrationError,
    RoomTable,
    RouteTable,
    parse_rank_record,
)
from runtime.bootstrap.token import Token
from runtime.sockets import open_listener

MAX_BODY_BYTES = 1 << 20
START_DEADLINE_S = 10.0
KEEP_ALIVE_S = 75  # clients close an idle connection earlier, so none writes to one that is just being closed

_QUERY = ("prefill_dp_rank", "prefill_cp_rank", "target_tp_rank", "target_pp_rank")


class BootstrapServer:
    """Serves one bootstrap table on its own thread. Port 0 takes a free one; `port` tells which."""

    def __init__(self, host: str, port: int, token: Token | None = None) -> None:
        """Bind and start; raises OSError when the port is taken, before any thread exists."""
        self._socket = open_listener(host, port, backlog=1024)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            bootstrap_app() if token is None else Guarded(bootstrap_app(), token),
            log_config=None,  # the process that hosts it has set up logging
            access_log=False,
            lifespan="off",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [self._socket]}, name="bootstrap", daemon=True
        )
        self._thread.start()
        self._wait_until_started()

    def close(self) -> None:
        """Stop serving and give the port back. Idempotent."""
        self._server.should_exit = True
        self._thread.join(timeout=START_DEADLINE_S)
        self._socket.close()

    def _wait_until_started(self) -> None:
        # uvicorn has no start event outside its own loop; this runs once, for milliseconds.
        deadline_s = time.monotonic() + START_DEADLINE_S
        while not self._server.started:
            if time.monotonic() > deadline_s or not self._thread.is_alive():
                self.close()
                raise OSError(
                    f"the bootstrap server on port {self.port} did not start within {START_DEADLINE_S:g} s"
                )
            time.sleep(0.005)


class Guarded:
    """Lets callers through that show the token."""

    def __init__(self, app: ASGIApp, token: Token) -> None:
        self._app = app
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = Headers(scope=scope).get("authorization")
        if scope["path"] == "/health" or self._token.is_shown_by(shown):
            await self._app(scope, receive, send)
            return
        refusal = PlainTextResponse("the token is missing or wrong", 401, {"WWW-Authenticate": "Bearer"})
        await refusal(scope, receive, send)


def bootstrap_app(clock: Callable[[], float] = time.monotonic) -> Starlette:
    """The routes over a fresh table. `clock` gives seconds and only has to grow."""
    routes, rooms = RouteTable(), RoomTable()

    async def put_route(request: Request) -> Response:
        routes.register(parse_rank_record(await _json_object(request)))
        return PlainTextResponse("OK")

    async def get_route(request: Request) -> Response:
        return _answer_route(routes, request)

    async def register_dp_rank(request: Request) -> Response:
        body = await _json_object(request)
        room, dp_rank = (_integer(body.get(name)) for name in ("bootstrap_room", "dp_rank"))
        rooms.register(room, dp_rank, now_s=clock())
        return PlainTextResponse("OK")

    async def query_dp_ranks(request: Request) -> Response:
        wanted = (await _json_object(request)).get("bootstrap_rooms")
        if not isinstance(wanted, list):
            raise RegistrationError("`bootstrap_rooms` must be a list")
        found = rooms.query([_integer(room) for room in wanted], now_s=clock())
        return JSONResponse({str(room): dp_rank for room, dp_rank in found.items()})

    async def health(_request: Request) -> Response:
        return PlainTextResponse("OK")

    return Starlette(
        routes=[
            Route("/route", put_route, methods=["PUT"]),
            Route("/route", get_route, methods=["GET"]),
            Route("/register_dp_rank", register_dp_rank, methods=["POST"]),
            Route("/query_dp_ranks", query_dp_ranks, methods=["POST"]),
            Route("/health", health, methods=["GET"]),
        ],
        exception_handlers={RegistrationError: _refuse},
    )


def _answer_route(routes: RouteTable, request: Request) -> Response:
    texts = [request.query_params.get(name) for name in _QUERY]
    try:
        wanted = [int(text) for text in texts if text is not None]
    except ValueError:
        wanted = []
    if len(wanted) != len(_QUERY):
        return PlainTextResponse(f"the query needs the integers {', '.join(_QUERY)}", status_code=400)
    shape = routes.shape()
    if shape is None:
        return PlainTextResponse("not all prefill ranks have registered yet", status_code=503)
    if all(number == -1 for number in wanted):
        return JSONResponse(shape.to_json())
    dp_rank, cp_rank, tp_rank, pp_rank = wanted
    record = routes.rank(dp_rank=dp_rank, cp_rank=cp_rank, tp_rank=tp_rank, pp_rank=pp_rank)
    if record is None:
        return PlainTextResponse(f"no prefill rank {tuple(wanted)}", status_code=404)
    return JSONResponse({"rank_ip": record.rank_ip, "rank_port": record.rank_port})


async def _json_object(request: Request) -> dict[str, object]:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RegistrationError(f"the body is longer than {MAX_BODY_BYTES} bytes")
    try:
        parsed = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise RegistrationError(f"the body is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise RegistrationError("the body must be a JSON object")
    return parsed


def _integer(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= MAX_ROOM_ID:
        raise RegistrationError(f"expected an integer from 0 to 2^63 - 1, found {value!r:.60}")
    return value


def _refuse(_request: Request, error: Exception) -> Response:
    return PlainTextResponse(str(error), status_code=400)
