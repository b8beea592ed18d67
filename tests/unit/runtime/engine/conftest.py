"""A model without weights, and engines built from it, for tests of the engine loop.

The toy model writes numbers into the KV pool that depend on token and position, and derives each next token
from the numbers that it reads back: a page that is lost, swapped, torn or late gives another token.
"""

from __future__ import annotations

import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
import torch

from runtime.bootstrap.client import find_prefill, register_rank
from runtime.bootstrap.registry import RankRecord
from runtime.bootstrap.server import BootstrapServer
from runtime.control.compat import Facts
from runtime.control.messages import Message
from runtime.control.network import ControlNetwork
from runtime.engine.build import start_engine
from runtime.engine.compute import Chunk, Model
from runtime.engine.live import LiveRequest, Sampled
from runtime.engine.loop import EngineLoop
from runtime.engine.request import (
    Finish,
    GenerateInput,
    Rendezvous,
    SamplingParams,
    TokenEvent,
    TokenLogprob,
)
from runtime.engine.settings import EngineSettings, Mode, parse_settings
from runtime.kv.layout import KVLayout

VOCAB_SIZE = 997
_MASK = np.uint64(0xFFFFFFFF)


def _kv_of(tokens: np.ndarray, positions: np.ndarray, num_elements: int) -> np.ndarray:
    """[N, num_elements] uint32: what the toy model writes for each token."""
    seeds = tokens.astype(np.uint64) * np.uint64(2654435761) + positions.astype(np.uint64) * np.uint64(40503)
    return ((seeds[:, None] + np.arange(num_elements, dtype=np.uint64) * np.uint64(97)) & _MASK).astype(
        np.uint32
    )


def _next_token(kv: np.ndarray) -> int:
    """kv: [N, num_elements] in token order. Depends on every element and on the order."""
    element = kv.astype(np.uint64) * np.arange(1, kv.shape[1] + 1, dtype=np.uint64)
    position = element.sum(axis=1) * np.arange(1, kv.shape[0] + 1, dtype=np.uint64)
    return int((int(position.sum()) >> 13) % VOCAB_SIZE)


class PageStack:
    """The plainest page allocator: hands out high pages first, in no helpful order."""

    def __init__(self, num_pages: int) -> None:
        self.num_pages = num_pages
        self._free = list(range(num_pages))
        np.random.default_rng(7).shuffle(self._free)

    @property
    def num_free(self) -> int:
        return len(self._free)

    def alloc(self, num: int, *, after: int | None = None) -> tuple[int, ...] | None:
        if num > len(self._free):
            return None
        return tuple(self._free.pop() for _ in range(num))

    def free(self, pages: Sequence[int]) -> None:
        assert not set(pages) & set(self._free), "a page was freed twice"
        self._free.extend(pages)


class ToyRunner:
    def __init__(self, pool: memoryview, layout: KVLayout) -> None:
        shape = (
            2 * layout.num_layers,
            layout.num_pages,
            layout.page_size,
            layout.num_kv_heads * layout.head_dim,
        )
        self._kv = np.frombuffer(pool, dtype=np.uint32).reshape(shape)
        self._layout = layout
        self.num_steps = 0
        self.step_s = 0.0
        self.failure: Exception | None = None
        self.batch_sizes: list[int] = []

    def forward(self, chunks: Sequence[Chunk]) -> torch.Tensor:
        if self.failure is not None:
            raise self.failure
        self.num_steps += 1
        self.batch_sizes.append(len(chunks))
        if self.step_s:
            time.sleep(self.step_s)
        logits = torch.zeros(len(chunks), VOCAB_SIZE)
        for row, chunk in enumerate(chunks):
            logits[row, self._one(chunk)] = 1.0
        return logits

    def _one(self, chunk: Chunk) -> int:
        num_elements = self._kv.shape[0] * self._kv.shape[3]
        end = chunk.start_pos + len(chunk.token_ids)
        positions = np.arange(chunk.start_pos, end)
        fresh = _kv_of(np.array(chunk.token_ids), positions, num_elements)
        pages, slots = self._places(chunk.pages, positions)
        self._kv[:, pages, slots] = fresh.reshape(len(positions), self._kv.shape[0], -1).transpose(1, 0, 2)
        pages, slots = self._places(chunk.pages, np.arange(end))
        return _next_token(self._kv[:, pages, slots].transpose(1, 0, 2).reshape(end, num_elements))

    def _places(self, pages: Sequence[int], positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.array(pages)[positions // self._layout.page_size], positions % self._layout.page_size


class ToySampler:
    """The highest logit; a logprob of -0.5 where one was asked for."""

    def sample(self, logits: torch.Tensor, requests: Sequence[LiveRequest]) -> list[Sampled]:
        tokens = [int(token) for token in logits.argmax(dim=1)]
        return [
            Sampled(
                token_id=token,
                logprob=TokenLogprob(token_id=token, logprob=-0.5, top=((token, -0.5), (1, -2.0)))
                if live.request.num_top_logprobs is not None
                else None,
            )
            for token, live in zip(tokens, requests, strict=True)
        ]


def _layout(*, num_pages: int = 64, page_size: int = 4, num_layers: int = 3, head_dim: int = 4) -> KVLayout:
    return KVLayout(
        num_layers=num_layers,
        num_pages=num_pages,
        page_size=page_size,
        num_kv_heads=2,
        head_dim=head_dim,
        dtype_bytes=4,
    )


def toy_model(
    layout: KVLayout, *, context_len: int = 4096, eos_token_ids: frozenset[int] = frozenset()
) -> Model:
    pool = memoryview(bytearray(layout.total_bytes))
    return Model(
        runner=ToyRunner(pool, layout),
        sampler=ToySampler(),
        allocators=(PageStack(layout.num_pages),),
        layout=layout,
        num_kv_heads=layout.num_kv_heads,
        pool=pool,
        vocab_size=VOCAB_SIZE,
        context_len=context_len,
        eos_token_ids=eos_token_ids,
    )


def _expected_tokens(prompt: Sequence[int], num_tokens: int, layout: KVLayout) -> tuple[int, ...]:
    """What the toy model says to a prompt, computed without a pool."""
    num_elements = 2 * layout.num_layers * layout.num_kv_heads * layout.head_dim
    tokens = list(prompt)
    for _ in range(num_tokens):
        positions = np.arange(len(tokens))
        tokens.append(_next_token(_kv_of(np.array(tokens), positions, num_elements)))
    return tuple(tokens[len(prompt) :])


@dataclass(slots=True)
class Answer:
    """Listens to one request, from any thread."""

    events: list[TokenEvent] = field(default_factory=list)
    started: threading.Event = field(default_factory=threading.Event)
    ended: threading.Event = field(default_factory=threading.Event)

    def __call__(self, event: TokenEvent) -> None:
        assert not self.ended.is_set(), f"an event after the last one: {event}"
        self.events.append(event)
        self.started.set()
        if event.finish is not None:
            self.ended.set()

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple(token for event in self.events for token in event.token_ids)

    def finish(self, timeout_s: float = 10.0) -> Finish:
        assert self.ended.wait(timeout_s), f"no end within {timeout_s} s, events so far: {self.events}"
        finish = self.events[-1].finish
        assert finish is not None
        return finish


@dataclass(slots=True)
class Toy:
    """A running engine with the model inside it."""

    engine: EngineLoop
    model: Model
    settings: EngineSettings

    @property
    def runner(self) -> ToyRunner:
        assert isinstance(self.model.runner, ToyRunner)
        return self.model.runner

    def ask(
        self,
        prompt: Sequence[int],
        *,
        rid: str = "one",
        max_new_tokens: int = 8,
        at: Rendezvous | None = None,
        num_top_logprobs: int | None = None,
        stop_token_ids: tuple[int, ...] = (),
    ) -> Answer:
        answer = Answer()
        sampling = SamplingParams(
            max_new_tokens=max_new_tokens, temperature=0.0, stop_token_ids=stop_token_ids
        )
        self.engine.submit(
            GenerateInput(
                rid=rid,
                token_ids=tuple(prompt),
                sampling=sampling,
                rendezvous=at,
                num_top_logprobs=num_top_logprobs,
            ),
            answer,
        )
        return answer

    def expect(self, prompt: Sequence[int], num_tokens: int) -> tuple[int, ...]:
        return _expected_tokens(prompt, num_tokens, self.model.layout)

    def wait_until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        deadline_s = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline_s, f"not within {timeout_s} s: {self.engine.stats()}"
            time.sleep(0.005)

    def assert_empty(self, timeout_s: float = 10.0) -> None:
        """No page, room or request is left."""

        def is_empty() -> bool:
            stats = self.engine.stats()
            in_use = [stats.num_running, stats.num_waiting, stats.num_handshaking, stats.num_transferring]
            in_use += [stats.extra["num_rooms"], stats.extra["num_reports"]]
            return not any(in_use) and stats.num_free_pages == stats.num_pages

        self.wait_until(is_empty, timeout_s)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


StartToy = Callable[..., Toy]


@pytest.fixture
def start_toy() -> Iterator[StartToy]:
    """Start engines; all are closed after the test. Keyword arguments are fields of the settings."""
    toys: list[Toy] = []

    def start(
        mode: Mode = Mode.UNIFIED,
        *,
        layout: KVLayout | None = None,
        context_len: int = 4096,
        eos_token_ids: frozenset[int] = frozenset(),
        **overrides: object,
    ) -> Toy:
        layout = layout or _layout()
        defaults: dict[str, object] = {
            "mode": mode,
            "bootstrap_port": free_port() if mode is Mode.PREFILL else 8998,
            "page_size": layout.page_size,
            "chunked_prefill_size": 16,
            "bootstrap_timeout_s": 10.0,
            "waiting_timeout_s": 10.0,
            "heartbeat_interval_s": 1.0,
        }
        plain = parse_settings(["--model-path", "toy"])
        settings = replace(plain, **(defaults | overrides))  # type: ignore[arg-type]
        model = toy_model(layout, context_len=context_len, eos_token_ids=eos_token_ids)
        toy = Toy(start_engine(settings, model), model, settings)
        toys.append(toy)
        return toy

    yield start
    for toy in reversed(toys):
        toy.engine.close()


@dataclass(slots=True)
class Pair:
    """A prefill and a decode engine, asked together as a router would."""

    prefill: Toy
    decode: Toy
    next_room: int = 1000

    def meeting(self, room: int | None = None) -> Rendezvous:
        if room is None:
            room, self.next_room = self.next_room, self.next_room + 1
        settings = self.prefill.settings
        return Rendezvous(bootstrap_host=settings.host, bootstrap_port=settings.bootstrap_port, room=room)

    def ask(self, prompt: Sequence[int], **fields: object) -> tuple[Answer, Answer]:
        at = self.meeting()
        name = f"room-{at.room}"
        ours = self.prefill.ask(prompt, rid=name, at=at, **fields)  # type: ignore[arg-type]
        theirs = self.decode.ask(prompt, rid=name, at=at, **fields)  # type: ignore[arg-type]
        return ours, theirs

    def assert_empty(self) -> None:
        self.prefill.assert_empty()
        self.decode.assert_empty()


@pytest.fixture
def start_pair(start_toy: StartToy) -> Callable[..., Pair]:
    def start(
        *, decode_layout: KVLayout | None = None, prefill_layout: KVLayout | None = None, **overrides: object
    ) -> Pair:
        prefill = start_toy(Mode.PREFILL, layout=prefill_layout, **overrides)
        decode = start_toy(Mode.DECODE, layout=decode_layout or _layout(num_pages=80), **overrides)
        return Pair(prefill, decode)

    return start


@pytest.fixture
def toy_layout() -> Callable[..., KVLayout]:
    """Makes layouts; the toy model's defaults hold 256 tokens."""
    return _layout


@pytest.fixture
def expected_tokens() -> Callable[[Sequence[int], int, KVLayout], tuple[int, ...]]:
    return _expected_tokens


@pytest.fixture
def meeting_at() -> Callable[[str, int, int], Rendezvous]:
    def meet(host: str, port: int, room: int) -> Rendezvous:
        return Rendezvous(bootstrap_host=host, bootstrap_port=port, room=room)

    return meet


class ScriptedPeer:
    """One end of the control channel that a test speaks for. Collects what it is told."""

    def __init__(self, *, heartbeat_interval_s: float = 1.0) -> None:
        self.messages: queue.SimpleQueue[Message] = queue.SimpleQueue()
        self.links: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.ends: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.network = ControlNetwork(self, heartbeat_interval_s=heartbeat_interval_s)
        self.link_id = 0

    def on_up(self, link_id: int) -> None:
        self.link_id = link_id
        self.links.put(link_id)

    def on_message(self, link_id: int, message: Message) -> None:
        self.messages.put(message)

    def on_down(self, link_id: int, reason: str) -> None:
        self.ends.put(reason)

    def say(self, message: Message) -> None:
        self.network.send(self.link_id, message)

    def hear(self, timeout_s: float = 5.0) -> Message:
        return self.messages.get(timeout=timeout_s)


@dataclass(slots=True)
class ScriptedPrefill:
    """A prefill server whose words are the test's: a real bootstrap server in front of a scripted peer."""

    peer: ScriptedPeer
    bootstrap: BootstrapServer

    def meeting(self, room: int) -> Rendezvous:
        return Rendezvous(bootstrap_host="127.0.0.1", bootstrap_port=self.bootstrap.port, room=room)

    def register(self, layout: KVLayout, rank_port: int, **fields: object) -> None:
        facts = Facts.of_pool(layout, "float32", num_kv_heads=layout.num_kv_heads)
        known: dict[str, object] = {
            "rank_ip": "127.0.0.1",
            "rank_port": rank_port,
            "page_size": facts.page_size,
            "kv_cache_dtype": facts.dtype,
            "kv_layout": facts.layout,
        }
        register_rank("127.0.0.1", self.bootstrap.port, RankRecord(**(known | fields)))  # type: ignore[arg-type]


@pytest.fixture
def scripted_prefill() -> Iterator[Callable[..., ScriptedPrefill]]:
    """`scripted_prefill(layout, rank_port=..., **record_fields)`; without a port it listens on one."""
    opened: list[ScriptedPrefill] = []

    def open_one(layout: KVLayout, rank_port: int | None = None, **fields: object) -> ScriptedPrefill:
        prefill = ScriptedPrefill(ScriptedPeer(), BootstrapServer("127.0.0.1", 0))
        opened.append(prefill)
        prefill.register(layout, rank_port or prefill.peer.network.listen("127.0.0.1"), **fields)
        return prefill

    yield open_one
    for prefill in opened:
        prefill.peer.network.close()
        prefill.bootstrap.close()


@pytest.fixture
def scripted_decode() -> Iterator[Callable[[Toy], ScriptedPeer]]:
    """`scripted_decode(prefill)` is linked to the prefill engine, and has said nothing yet."""
    peers: list[ScriptedPeer] = []

    def dial(prefill: Toy) -> ScriptedPeer:
        peer = ScriptedPeer()
        peers.append(peer)
        found = find_prefill(
            "127.0.0.1", prefill.settings.bootstrap_port, deadline_s=0.0, stopped=threading.Event()
        )
        peer.network.dial(found.rank_ip, found.rank_port)
        peer.links.get(timeout=5)
        return peer

    yield dial
    for peer in peers:
        peer.network.close()
