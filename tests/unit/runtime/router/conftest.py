"""Real workers on loopback that answer from a script, and a client that speaks ASGI to the application."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from runtime.router.app import RouterApp
from runtime.router.health import poll
from runtime.router.settings import RouterSettings, parse_settings


@dataclass(kw_only=True)
class Received:
    """A request as a worker saw it."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    is_first_on_connection: bool = True

    def json(self) -> Any:
        return json.loads(self.body)


Script = Callable[[Received, asyncio.StreamWriter], Awaitable[None]]


class ScriptedWorker:
    """An HTTP/1.1 server whose script writes each answer byte by byte, so it can also misbehave."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.received: list[Received] = []
        self.num_connections = 0
        self.hung_up = asyncio.Event()  # the router closed a connection in the middle of an exchange
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.num_connections += 1
        is_first = True
        try:
            while not writer.is_closing():
                request = await _read_request(reader, is_first)
                is_first = False
                if request.path != "/health":
                    self.received.append(request)
                await self._answer(request, reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, request: Received, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Run the script until it ends or the router hangs up."""
        script = asyncio.ensure_future(self.script(request, writer))
        end = asyncio.ensure_future(_wait_for_eof(reader))
        try:
            await asyncio.wait({script, end}, return_when=asyncio.FIRST_COMPLETED)
            if not script.done():
                self.hung_up.set()
                raise ConnectionError("the router hung up")
            script.result()
        finally:
            script.cancel()
            end.cancel()
            await asyncio.gather(script, end, return_exceptions=True)


async def _wait_for_eof(reader: asyncio.StreamReader) -> None:
    while not reader.at_eof():
        await asyncio.sleep(0.005)


async def _read_request(reader: asyncio.StreamReader, is_first: bool) -> Received:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Received(method=method, path=path, headers=headers, body=body, is_first_on_connection=is_first)


def http_answer(
    status: int, body: bytes = b"{}", *, content_type: str = "application/json", extra: str = ""
) -> bytes:
    head = (
        f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{extra}\r\n"
    )
    return head.encode() + body


def answering(status: int, body: bytes = b"{}", **fields: str) -> Script:
    """A script that answers every request alike, but health checks with 200."""

    async def script(request: Received, writer: asyncio.StreamWriter) -> None:
        is_health = request.path == "/health"
        writer.write(http_answer(200) if is_health else http_answer(status, body, **fields))

    return script


async def silent(request: Received, writer: asyncio.StreamWriter) -> None:
    """Answers health checks and nothing else."""
    if request.path == "/health":
        writer.write(http_answer(200))
    else:
        await asyncio.sleep(3600)


EVENT_STREAM_HEAD = b"HTTP/1.1 200 X\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def http_chunk(piece: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(piece), piece)


@dataclass(kw_only=True)
class ClientCall:
    """One request to the application. `messages` grows while it is answered."""

    app: RouterApp
    method: str
    path: str
    body: bytes
    headers: Sequence[tuple[bytes, bytes]] = ()
    messages: list[dict[str, Any]] = field(default_factory=list)
    gate: asyncio.Event | None = None  # a slow client: sending waits for it

    def __post_init__(self) -> None:
        self._has_sent_body = False
        self._gone = asyncio.Event()
        self.first_byte = asyncio.Event()

    async def run(self) -> ClientCall:
        scope = {
            "type": "http",
            "method": self.method,
            "path": self.path,
            "headers": [(b"content-length", b"%d" % len(self.body)), *self.headers],
        }
        await self.app(scope, self._receive, self._send)
        self._gone.set()
        return self

    def hang_up(self) -> None:
        self._gone.set()

    @property
    def status(self) -> int:
        return self.messages[0]["status"]

    @property
    def reply_headers(self) -> dict[bytes, bytes]:
        return dict(self.messages[0]["headers"])

    @property
    def reply_body(self) -> bytes:
        return b"".join(message["body"] for message in self.messages[1:])

    @property
    def is_complete(self) -> bool:
        return bool(self.messages) and not self.messages[-1].get("more_body", True)

    def json(self) -> Any:
        return json.loads(self.reply_body)

    async def _receive(self) -> dict[str, Any]:
        if not self._has_sent_body:
            self._has_sent_body = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.messages.append(message)
        if message["type"] == "http.response.body":
            self.first_byte.set()
            if self.gate is not None:
                await self.gate.wait()


class Bench:
    """Workers, the application in front of them, and calls to it."""

    def __init__(self, app: RouterApp, prefill: list[ScriptedWorker], decode: list[ScriptedWorker]) -> None:
        self.app = app
        self.prefill = prefill
        self.decode = decode

    async def poll(self) -> None:
        for worker in self.app.workers:
            await poll(worker, self.app.settings.health)

    def call(
        self, path: str, body: bytes | dict[str, Any] = b"", *, method: str = "POST", **fields: Any
    ) -> ClientCall:
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        return ClientCall(app=self.app, method=method, path=path, body=payload, **fields)

    async def post(self, path: str, body: bytes | dict[str, Any], **fields: Any) -> ClientCall:
        return await self.call(path, body, **fields).run()

    async def get(self, path: str, **fields: Any) -> ClientCall:
        return await self.call(path, method="GET", **fields).run()


@asynccontextmanager
async def open_bench(
    prefill: Sequence[Script], decode: Sequence[Script], *flags: str, is_polled: bool = True
) -> AsyncIterator[Bench]:
    workers = [ScriptedWorker(script) for script in (*prefill, *decode)]
    for worker in workers:
        await worker.start()
    prefills, decodes = workers[: len(prefill)], workers[len(prefill) :]
    argv = [part for worker in prefills for part in ("--prefill", worker.url, "8998")]
    argv += [part for worker in decodes for part in ("--decode", worker.url)]
    argv += ["--retry-initial-backoff-ms", "1", *flags]
    bench = Bench(RouterApp(parse_settings(argv)), prefills, decodes)
    try:
        if is_polled:
            await bench.poll()
        yield bench
    finally:
        for worker in workers:
            await worker.stop()
        for worker in bench.app.workers:
            worker.pool.close_idle()
        await asyncio.sleep(0)


class Stage:
    """What the tests use, as one fixture: test files do not import each other."""

    open_bench = staticmethod(open_bench)
    scripted_worker = ScriptedWorker
    http_answer = staticmethod(http_answer)
    answering = staticmethod(answering)
    silent = staticmethod(silent)
    http_chunk = staticmethod(http_chunk)
    event_stream_head = EVENT_STREAM_HEAD


@pytest.fixture
def stage() -> Stage:
    return Stage()


@pytest.fixture
def settings() -> RouterSettings:
    return parse_settings(["--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2"])
