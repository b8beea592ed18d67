"""Thousands of requests through a pair of engines, many given up at random moments: nothing stays behind.

Clients hang up, or abort either half by name. In the end the engines' own counts are at zero, and every
process of theirs has as many sockets and threads as before.
"""

from __future__ import annotations

import asyncio
import collections
import itertools
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.testbed.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

_ENGINE = ("--max-total-tokens", "4096", "--page-size", "8", "--chunked-prefill-size", "32", "--verify-kv")
_NUM_AT_ONCE = 32
_NUM_TOKENS = 12
_FATES = ("ends",) * 5 + ("hang up",) * 2 + ("abort decode", "abort prefill")

Prompts = dict[tuple[int, ...], list[int]]  # with the answers of one plain engine


@dataclass(frozen=True)
class Pair:
    prefill: Any
    decode: Any
    bootstrap_port: int

    def processes(self) -> list[int]:
        leaders = [self.prefill.process.pid, self.decode.process.pid]
        return [pid for leader in leaders for pid in (leader, *_children(leader))]


@pytest.fixture(scope="module")
def start_pair(start_engine, tiny_llama, free_port) -> Callable[..., Pair]:
    def start(prefill: tuple[str, ...] = (), decode: tuple[str, ...] = ()) -> Pair:
        port = free_port()
        common = ("--model-path", str(tiny_llama), *_ENGINE, "--disaggregation-bootstrap-port", str(port))
        return Pair(
            start_engine(*common, "--disaggregation-mode", "prefill", *prefill),
            start_engine(*common, "--disaggregation-mode", "decode", *decode),
            port,
        )

    return start


@pytest.fixture(scope="module")
def prompts(tiny_engine) -> Prompts:
    """What one plain engine answers to each."""
    chance = random.Random(5)
    lengths = (1, 7, 8, 9, 31, 32, 33, 90)
    made = [tuple(chance.randrange(3, 250) for _ in range(length)) for length in lengths]
    with httpx.Client(base_url=tiny_engine.url, timeout=60) as client:
        return {prompt: client.post("/generate", json=_body(prompt)).json()["output_ids"] for prompt in made}


def test_two_thousand_requests_and_random_aborts_leave_nothing(start_pair, prompts):
    _soak(start_pair(), prompts, num_requests=2000)


def test_unequal_splits_with_staging_leave_nothing(start_pair, prompts):
    pair = start_pair(("--tp-size", "2"), ("--tp-size", "2", "--attn-dp-size", "2"))
    _soak(pair, prompts, num_requests=300)


def _soak(pair: Pair, prompts: Prompts, *, num_requests: int) -> None:
    rooms = itertools.count(1)
    asyncio.run(Soak(pair, prompts, rooms, seed=1).run(100))  # what is opened once, is open now
    wait_until(lambda: _is_empty(pair))
    before = _usage(pair)
    outcomes = asyncio.run(Soak(pair, prompts, rooms, seed=2).run(num_requests))
    wait_until(lambda: _is_empty(pair))
    wait_until(lambda: _has_no_more(_usage(pair), before))
    assert outcomes["answered"] > num_requests // 2
    assert outcomes["given up"] > num_requests // 10


@dataclass(frozen=True)
class Answer:
    status: int
    content: dict[str, Any]

    @property
    def is_whole(self) -> bool:
        return self.status == 200 and self.content["meta_info"]["finish_reason"]["type"] == "length"


class Soak:
    """One client with many requests at once, a connection for each."""

    def __init__(self, pair: Pair, prompts: Prompts, rooms: Iterator[int], *, seed: int) -> None:
        self._pair = pair
        self._prompts = prompts
        self._rooms = rooms
        self._chance = random.Random(seed)
        self._outcomes: collections.Counter[str] = collections.Counter()

    async def run(self, num_requests: int) -> collections.Counter[str]:
        """Fates are drawn before anything runs: drawn in between, their mix would depend on the machine."""
        gate, prompts = asyncio.Semaphore(_NUM_AT_ONCE), [*self._prompts]
        draw = self._chance
        drawn = [
            (draw.choice(prompts), draw.choice(_FATES), draw.uniform(0, 0.1)) for _ in range(num_requests)
        ]
        await asyncio.gather(*(self._one(gate, *each) for each in drawn))
        return self._outcomes

    async def _one(self, gate: asyncio.Semaphore, prompt: tuple[int, ...], fate: str, pause_s: float) -> None:
        async with gate:
            room = next(self._rooms)
            body = _body(prompt) | {
                "rid": f"soak-{room}",
                "bootstrap_host": "127.0.0.1",
                "bootstrap_port": self._pair.bootstrap_port,
                "bootstrap_room": room,
            }
            engines = (self._pair.prefill, self._pair.decode)
            halves = [asyncio.create_task(_post(engine, "/generate", body)) for engine in engines]
            if fate != "ends":
                await asyncio.sleep(pause_s)
                await self._give_up(fate, halves, body["rid"])
            ends = await asyncio.gather(*halves, return_exceptions=True)
            self._judge(prompt, fate, ends)

    async def _give_up(self, fate: str, halves: list[asyncio.Task[Answer]], rid: str) -> None:
        """A router whose client hangs up closes both halves. Some have not even been sent by then."""
        if fate == "hang up":
            for half in halves:
                half.cancel()
            return
        engine = self._pair.prefill if fate == "abort prefill" else self._pair.decode
        await _post(engine, "/abort_request", {"rid": rid})

    def _judge(self, prompt: tuple[int, ...], fate: str, ends: list[Answer | BaseException]) -> None:
        """Whoever gets an answer gets the right one; only what was given up may fail."""
        answers = [end for end in ends if isinstance(end, Answer)]
        assert all(isinstance(end, (Answer, asyncio.CancelledError)) for end in ends), ends
        is_answered = len(answers) == 2 and all(answer.is_whole for answer in answers)
        if is_answered:
            assert answers[1].content["output_ids"] == self._prompts[prompt]
        assert is_answered or fate != "ends", answers
        self._outcomes["answered" if is_answered else "given up"] += 1


async def _post(engine: Any, path: str, body: dict[str, Any]) -> Answer:
    """A request on a connection of its own, which a cancelled task closes: a full client would cost more
    than both engines."""
    content = json.dumps(body)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(content)}"
    async with asyncio.timeout(120):
        reader, writer = await asyncio.open_connection("127.0.0.1", engine.port)
        try:
            writer.write(f"{head}\r\n\r\n{content}".encode())
            status, _, answer = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
    return Answer(int(status.split()[1]), json.loads(answer))


def _body(prompt: tuple[int, ...]) -> dict[str, Any]:
    sampling = {"max_new_tokens": _NUM_TOKENS, "temperature": 0, "ignore_eos": True}
    return {"input_ids": list(prompt), "sampling_params": sampling}


def _is_empty(pair: Pair) -> bool:
    for engine in (pair.prefill, pair.decode):
        stats = httpx.get(f"{engine.url}/server_info", timeout=30).json()["stats"]
        counts = [
            stats[name] for name in ("num_running", "num_waiting", "num_handshaking", "num_transferring")
        ]
        counts += [stats["extra"][name] for name in ("num_rooms", "num_reports")]
        if any(counts) or stats["num_free_pages"] != stats["num_pages"]:
            return False
    return True


def _usage(pair: Pair) -> list[tuple[int, int]]:
    """Sockets and threads of each process."""
    return [(_num_sockets(pid), len([*Path(f"/proc/{pid}/task").iterdir()])) for pid in pair.processes()]


def _has_no_more(now: list[tuple[int, int]], before: list[tuple[int, int]]) -> bool:
    return all(
        a <= b for one, other in zip(now, before, strict=True) for a, b in zip(one, other, strict=True)
    )


def _num_sockets(pid: int) -> int:
    num = 0
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        try:
            num += str(fd.readlink()).startswith("socket:")
        except FileNotFoundError:
            continue  # closed meanwhile
    return num


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
