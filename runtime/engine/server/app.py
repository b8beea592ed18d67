"""The ASGI application: routes, request ids, and the boundary where every failure becomes an answer."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runtime.engine.server.answer import PlannedRequest, answer
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields, parse_object
from runtime.engine.server.generate import MAX_RID_LEN, plan_generate
from runtime.engine.server.http import (
    ClientGoneError,
    header,
    read_body,
    run_while_connected,
    send_error,
    send_stream_part,
    stream_error,
)
from runtime.engine.server.openai_chat import plan_chat
from runtime.engine.server.openai_completions import plan_completion
from runtime.engine.server.routed_rank import HEADER, with_header
from runtime.engine.server.state import ServerState
from runtime.engine.server.status import StatusRoutes

log = logging.getLogger(__name__)

Planner = Callable[[ServerState, Fields, str], Awaitable[PlannedRequest]]

_RID_PREFIXES = {"/v1/chat/completions": "chatcmpl-", "/v1/completions": "cmpl-"}
_OPENAI_ROUTES = frozenset(_RID_PREFIXES)
_INTERNAL_ERROR = RequestError("internal error: see the log of this engine", status=500)


def build_app(state: ServerState) -> ASGIApp:
    """All routes of one server."""
    return RequestBoundary(Router([*_generating_routes(state), *_status_routes(state)]))


class GeneratingRoute:
    """POST a body, get generated text. Ends at once when the client goes away."""

    def __init__(self, state: ServerState, plan: Planner) -> None:
        self._state = state
        self._plan = plan

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await read_body(receive)
        rank = header(scope, HEADER) if scope["path"] in _OPENAI_ROUTES else None
        await run_while_connected(receive, self._answer(body, rank, scope["request_id"], send))

    async def _answer(self, body: bytes, rank: str | None, request_id: str, send: Send) -> None:
        planned = await self._plan(self._state, with_header(parse_object(body), rank), request_id)
        await answer(self._state, planned, send)


class RequestBoundary:
    """Names each request and turns each failure into OpenAI's error form, whatever state the answer is in."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request_id = header(scope, b"x-request-id") or _new_rid(scope["path"])
        scope["request_id"] = request_id[:MAX_RID_LEN]
        scope["app"] = self  # has the router raise its errors instead of answering them in plain text
        progress = _AnswerProgress(send, scope["request_id"])
        try:
            await self._app(scope, receive, progress.send)
        except ClientGoneError:
            log.debug("%s: the client went away", request_id)
        except RequestError as error:
            # A failed generation is the operator's concern; a poll that is told to wait is nobody's.
            is_failure = error.status >= 500 and scope["method"] == "POST"
            log.log(
                logging.WARNING if is_failure else logging.DEBUG,
                "%s: %d %s",
                request_id,
                error.status,
                error.message,
            )
            await progress.fail(error)
        except HTTPException as error:  # the router's own: no such route, wrong method
            message = f"{scope['method']} {scope['path']}: {error.detail.lower()}"
            await progress.fail(RequestError(message, status=error.status_code))
        except Exception:
            log.exception("%s: request failed", request_id)
            await progress.fail(_INTERNAL_ERROR)


class _AnswerProgress:
    """Adds the request id to the answer and knows how far the answer has come."""

    def __init__(self, send: Send, request_id: str) -> None:
        self._send = send
        self._request_id = request_id.encode("latin-1", "replace")
        self._has_started = False
        self._is_complete = False

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._has_started = True
            message["headers"] = [*message["headers"], (b"x-request-id", self._request_id)]
        elif not message.get("more_body", False):
            self._is_complete = True
        await self._send(message)

    async def fail(self, error: RequestError) -> None:
        if not self._has_started:
            await send_error(self.send, error)
        elif not self._is_complete:  # only streams are sent in parts
            await send_stream_part(self.send, stream_error(error), is_last=True)


def _generating_routes(state: ServerState) -> list[BaseRoute]:
    planners: dict[str, Planner] = {
        "/generate": plan_generate,
        "/v1/completions": plan_completion,
        "/v1/chat/completions": plan_chat,
    }
    return [Route(path, GeneratingRoute(state, plan), methods=["POST"]) for path, plan in planners.items()]


def _status_routes(state: ServerState) -> list[BaseRoute]:
    routes = StatusRoutes(state)
    readers: dict[str, Callable[[Request], Awaitable[Response]]] = {
        "/health": routes.health,
        "/health_generate": routes.health_generate,
        "/v1/models": routes.models,
        "/v1/models/{name:path}": routes.one_model,
        "/model_info": routes.model_facts,
        "/get_model_info": routes.model_facts,
        "/server_info": routes.server_facts,
        "/get_server_info": routes.server_facts,
        "/get_load": routes.load,
        "/v1/loads": routes.loads,
        "/metrics": routes.metrics,
    }
    return [
        *(Route(path, endpoint) for path, endpoint in readers.items()),
        Route("/flush_cache", routes.flush_cache, methods=["GET", "POST"]),
        Route("/abort_request", routes.abort, methods=["POST"]),
    ]


def _new_rid(path: str) -> str:
    return _RID_PREFIXES.get(path, "") + uuid.uuid4().hex
