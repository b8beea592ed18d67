"""A small real engine, a byte tokenizer and a real server on loopback, all in this process."""

from __future__ import annotations

import asyncio
import codecs
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest
import uvicorn

from runtime.engine.chat_template import ChatTemplateError
from runtime.engine.request import (
    EngineStats,
    Finish,
    FinishReason,
    GenerateInput,
    Listener,
    TokenEvent,
    TokenLogprob,
)
from runtime.engine.server.app import build_app
from runtime.engine.server.state import ServedModel, ServerState
from runtime.engine.settings import EngineSettings, parse_settings

EOS_ID = 256
VOCAB_SIZE = 257


class ByteDecoder:
    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Sequence[int]) -> str:
        return self._decoder.decode(bytes(t for t in token_ids if t < 256))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class ByteCodec:
    """One token per byte of UTF-8; 256 ends a text."""

    def encode(self, text: str) -> list[int]:
        return list(text.encode())

    def decode(self, token_ids: Sequence[int]) -> str:
        return bytes(t for t in token_ids if t < 256).decode(errors="replace")

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        if messages[0]["role"] == "tool":
            raise ChatTemplateError("a conversation can't begin with a tool")
        return self.encode("".join(f"[{m['role']}]{m['content']}" for m in messages))

    def decoder(self, *, skip_special_tokens: bool) -> ByteDecoder:
        return ByteDecoder()


@dataclass
class _Running:
    request: GenerateInput
    listener: Listener
    answer: list[int]
    num_sent: int = 0


@dataclass
class EchoEngine:
    """Answers a prompt with what stands in it after `say:`, one byte per step; else with `abcdef…`.

    `fail:STATUS:` in a prompt aborts it with that status before the first token, `fail-late:STATUS:` after
    two.
    """

    step_s: float = 0.0
    hang: bool = False  # never answer, as a room whose other half does not come
    heartbeat_s: float = 0.0
    aborted: list[str] = field(default_factory=list)
    submitted: list[GenerateInput] = field(default_factory=list)
    _commands: queue.SimpleQueue[Callable[[], None] | None] = field(default_factory=queue.SimpleQueue)
    _running: dict[str, _Running] = field(default_factory=dict)

    def start(self) -> None:
        self._thread = threading.Thread(target=self._loop, daemon=True)
        self._thread.start()

    def submit(self, request: GenerateInput, listener: Listener) -> None:
        self.submitted.append(request)
        answer = list(_answer_bytes(bytes(t % 256 for t in request.token_ids)))
        entry = _Running(request, listener, answer)
        self._commands.put(lambda: self._running.__setitem__(request.rid, entry))

    def abort(self, rid: str) -> None:
        self.aborted.append(rid)
        self._commands.put(
            lambda: self._end(rid, Finish(reason=FinishReason.ABORT, message="aborted", status=500))
        )

    def stats(self) -> EngineStats:
        return EngineStats(
            num_requests=len(self.submitted),
            num_aborted=len(self.aborted),
            num_running=len(self._running),
            num_free_pages=30,
            num_pages=40,
            transfer_bytes=1234,
            extra={"retractions": 3.0},
        )

    def heartbeat_age_s(self) -> float:
        return self.heartbeat_s

    def close(self) -> None:
        self._commands.put(None)

    def _loop(self) -> None:
        while True:
            try:
                command = self._commands.get(timeout=None if not self._running or self.hang else 0)
                if command is None:
                    return
                command()
            except queue.Empty:
                time.sleep(self.step_s)
                for rid in list(self._running):
                    self._step(rid)

    def _step(self, rid: str) -> None:
        running = self._running[rid]
        text = bytes(t % 256 for t in running.request.token_ids)
        for marker, after in ((b"fail:", 0), (b"fail-late:", 2)):
            if marker in text and running.num_sent == after:
                status = int(text.split(marker)[1].split(b":")[0])
                self._end(
                    rid, Finish(reason=FinishReason.ABORT, message="the other half died", status=status)
                )
                return
        sampling = running.request.sampling
        token = running.answer[running.num_sent] if running.num_sent < len(running.answer) else EOS_ID
        running.num_sent += 1
        finish = None
        if (token == EOS_ID and not sampling.ignore_eos) or token in sampling.stop_token_ids:
            finish = Finish(reason=FinishReason.STOP, matched=token)
        elif running.num_sent == sampling.max_new_tokens:
            finish = Finish(reason=FinishReason.LENGTH)
        self._emit(running, token, finish)

    def _emit(self, running: _Running, token: int, finish: Finish | None) -> None:
        num_top = running.request.num_top_logprobs
        logprobs: tuple[TokenLogprob, ...] = ()
        if num_top is not None:
            top = tuple((token + i, math.log(0.5 / (i + 1))) for i in range(num_top))
            logprobs = (TokenLogprob(token_id=token, logprob=math.log(0.5), top=top),)
        if finish is not None:
            del self._running[running.request.rid]
        running.listener(
            TokenEvent(rid=running.request.rid, token_ids=(token,), logprobs=logprobs, finish=finish)
        )

    def _end(self, rid: str, finish: Finish) -> None:
        running = self._running.pop(rid, None)
        if running is not None:
            running.listener(TokenEvent(rid=rid, finish=finish))


def _answer_bytes(prompt: bytes) -> bytes:
    _, marker, answer = prompt.partition(b"say:")
    return answer if marker else b"abcdefghijklmnopqrstuvwxyz" * 4


@dataclass(frozen=True)
class RunningServer:
    url: str
    engine: EchoEngine
    client: httpx.Client


@contextmanager
def _serving(settings: EngineSettings, *, codec: ByteCodec | None, is_ready: bool) -> Iterator[RunningServer]:
    engine = EchoEngine()
    engine.start()
    model = _served_model(engine, codec) if is_ready else None
    box: queue.SimpleQueue[tuple[uvicorn.Server, int]] = queue.SimpleQueue()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(settings, model, box)), daemon=True)
    thread.start()
    server, port = box.get(timeout=10)
    url = f"http://127.0.0.1:{port}"
    with httpx.Client(base_url=url, timeout=10) as client:
        yield RunningServer(url, engine, client)
    server.should_exit = True
    thread.join(timeout=10)
    engine.close()


async def _serve(
    settings: EngineSettings,
    model: ServedModel | None,
    box: queue.SimpleQueue[tuple[uvicorn.Server, int]],
) -> None:
    """Serve until told to stop; put the server and its port into `box` when it accepts connections."""
    state = ServerState(settings)
    if model is not None:
        state.become_ready(model)
    config = uvicorn.Config(
        build_app(state), host="127.0.0.1", port=0, lifespan="off", log_config=None, loop="none", ws="none"
    )
    server = uvicorn.Server(config)
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    box.put((server, server.servers[0].sockets[0].getsockname()[1]))
    await serving


def _served_model(engine: EchoEngine, codec: ByteCodec | None) -> ServedModel:
    return ServedModel(
        engine=engine,
        codec=codec,
        vocab_size=VOCAB_SIZE,
        context_len=100,
        num_pool_tokens=640,
        model_type="echo",
        architecture="EchoForCausalLM",
        tokenizer_path=None,
    )


@pytest.fixture(scope="session")
def settings_for() -> Callable[..., EngineSettings]:
    def make(mode: str = "null") -> EngineSettings:
        return parse_settings(
            ["--model-path", "/models/echo", "--served-model-name", "echo", "--disaggregation-mode", mode]
        )

    return make


@pytest.fixture(scope="session")
def start_server(settings_for: Callable[..., EngineSettings]):
    """`with start_server(mode=…) as server:` runs a real server around a real small engine."""

    def start(mode: str = "null", *, has_tokenizer: bool = True, is_ready: bool = True):
        codec = ByteCodec() if has_tokenizer else None
        return _serving(settings_for(mode), codec=codec, is_ready=is_ready)

    return start


@pytest.fixture(scope="module")
def unified(start_server) -> Iterator[RunningServer]:
    with start_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(unified: RunningServer) -> httpx.Client:
    return unified.client


@pytest.fixture
def own_server(start_server) -> Iterator[RunningServer]:
    """A server whose engine this test may slow down or break."""
    with start_server() as server:
        yield server
