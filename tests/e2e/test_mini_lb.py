"""The mini load balancer as a process in front of worker processes that are killed and restarted."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.testbed.waiting import wait_until

ROOT = Path(__file__).parents[2]
WORKER = Path(__file__).with_name("pd_worker.py")
DEADLINE_S = 60.0


def answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=DEADLINE_S).status_code == 200
    except httpx.TransportError:
        return False


class Process:
    def __init__(self, *argv: str) -> None:
        self.argv = argv
        self.start()

    def start(self) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, *self.argv], cwd=ROOT, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def kill(self) -> None:
        self.popen.kill()
        self.popen.wait()
        self._reader.join()

    def terminate(self) -> int:
        self.popen.send_signal(signal.SIGTERM)
        code = self.popen.wait(DEADLINE_S)
        self._reader.join()
        return code

    def _read(self) -> None:
        assert self.popen.stderr is not None
        self.lines.extend(self.popen.stderr)
        self.popen.stderr.close()


class Worker(Process):
    def __init__(self, name: str, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{self.port}"
        super().__init__(str(WORKER), str(self.port), name)

    def seen(self) -> dict[str, Any]:
        return httpx.get(f"{self.url}/seen").json()

    def num_seen(self) -> int:
        return len(self.seen()["bodies"])


class Fleet:
    """Processes of one test; all are gone after it."""

    def __init__(self, free_port: Callable[[], int]) -> None:
        self.processes: list[Process] = []
        self._free_port = free_port

    def workers(self, *names: str) -> list[Worker]:
        workers = [Worker(name, self._free_port()) for name in names]
        self.processes += workers
        for worker in workers:
            wait_until(lambda worker=worker: answers(f"{worker.url}/health"), f"{worker.argv[-1]} answers")
        return workers

    def router(
        self, prefill: list[Worker], decode: list[Worker], *flags: str, is_ready: bool = True
    ) -> tuple[Process, str]:
        port = self._free_port()
        argv = [part for worker in prefill for part in ("--prefill", worker.url, "8998")]
        argv += [part for worker in decode for part in ("--decode", worker.url)]
        flags = ("--health-check-interval-secs", "0.3", *flags)
        router = Process("-m", "runtime.router", "--port", str(port), *argv, *flags)
        self.processes.append(router)
        url = f"http://127.0.0.1:{port}"
        wait_until(lambda: answers(f"{url}/{'readiness' if is_ready else 'health'}"), "router is up")
        return router, url

    def close(self) -> None:
        for process in self.processes:
            process.kill()


@pytest.fixture
def fleet(free_port: Callable[[], int]) -> Iterator[Fleet]:
    fleet = Fleet(free_port)
    yield fleet
    fleet.close()


def generate(url: str, text: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{url}/generate", json={"text": text, **fields}, timeout=DEADLINE_S)


def healthy(url: str) -> list[bool]:
    return [worker["is_healthy"] for worker in httpx.get(f"{url}/workers").json()["workers"]]


def num_in_flight(url: str) -> float:
    metrics = httpx.get(f"{url}/metrics").text
    return sum(
        float(line.split()[-1]) for line in metrics.splitlines() if re.match(r"pdctl.*_in_flight", line)
    )


def test_openai_client_chats_through_it_streamed_and_not(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode])
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    messages: Any = [{"role": "user", "content": "hello"}]
    pieces = [
        chunk.choices[0].delta.content
        for chunk in client.chat.completions.create(model="m", messages=messages, stream=True)
    ]
    assert pieces == ["first ", "last"]
    # Decode has answered; the half of prefill may still be on its way.
    wait_until(lambda: prefill.num_seen() == 1, "prefill has its half")
    assert prefill.seen()["bodies"] == decode.seen()["bodies"]
    with pytest.raises(openai.BadRequestError, match="as told"):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "refuse"}])


def test_first_event_arrives_while_decode_still_generates(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode])
    body = {"text": "held", "stream": True}
    with httpx.stream("POST", f"{url}/generate", json=body, timeout=DEADLINE_S) as response:
        pieces = response.iter_text()
        assert "first" in next(pieces)
        httpx.post(f"{decode.url}/release")
        assert "[DONE]" in "".join(pieces)


@pytest.mark.parametrize("is_stream", [False, True])
def test_both_workers_learn_at_once_that_the_client_hung_up(fleet: Fleet, is_stream: bool) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode])
    body = json.dumps({"text": "hang", "stream": is_stream})
    head = f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2]))) as client:
        client.sendall((head + body).encode())
        wait_until(lambda: prefill.num_seen() == decode.num_seen() == 1, "both legs are sent")
    wait_until(lambda: prefill.seen()["num_hung_up"] == decode.seen()["num_hung_up"] == 1, "workers told")
    wait_until(lambda: num_in_flight(url) == 0, "nothing in flight")


def test_prefill_killed_while_decode_waits_is_an_error_at_once_and_frees_decode(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode])
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(generate, url, "hang")
        wait_until(lambda: prefill.num_seen() == decode.num_seen() == 1, "both legs are sent")
        prefill.kill()
        response = answer.result()
    assert response.status_code in (502, 503)
    assert f"prefill {prefill.url}" in response.json()["error"]["message"]
    wait_until(lambda: decode.seen()["num_hung_up"] == 1, "decode is freed")
    response = generate(url, "again")
    assert response.status_code == 503
    assert "no healthy prefill instance" in response.json()["error"]["message"]


def test_decode_killed_in_a_stream_ends_it_with_an_error_event_and_frees_prefill(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode])
    body = {"text": "hang", "stream": True}
    with httpx.stream("POST", f"{url}/generate", json=body, timeout=DEADLINE_S) as response:
        pieces = response.iter_text()
        next(pieces)
        decode.kill()
        assert '"code":"decode_server_error"' in "".join(pieces)
    wait_until(lambda: prefill.seen()["num_hung_up"] == 1, "prefill is freed")


def test_killed_decode_is_replaced_without_a_failed_request_and_comes_back(fleet: Fleet) -> None:
    prefill, first, second = fleet.workers("prefill", "first", "second")
    _, url = fleet.router([prefill], [first, second])
    first.kill()
    assert [generate(url, "a").json()["text"] for _ in range(6)] == ["second: a"] * 6
    wait_until(lambda: healthy(url) == [True, False, True], "the dead one is out")
    first.start()
    wait_until(lambda: healthy(url) == [True, True, True], "it is back in")
    assert {generate(url, "a").json()["text"] for _ in range(4)} == {"first: a", "second: a"}


def test_router_started_before_its_workers_becomes_ready_with_them(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    prefill.kill()
    _, url = fleet.router([prefill], [decode], "--health-check-interval-secs", "60", is_ready=False)
    assert httpx.get(f"{url}/readiness").status_code == 503
    prefill.start()
    wait_until(lambda: answers(f"{url}/readiness"), "router is ready")
    assert generate(url, "a").status_code == 200


def test_sigterm_finishes_what_is_in_flight_and_exits_with_0(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    router, url = fleet.router([prefill], [decode])
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(generate, url, "held")
        wait_until(lambda: decode.num_seen() == 1, "the request is in flight")
        ended = pool.submit(router.terminate)
        wait_until(lambda: not answers(f"{url}/health"), "no new connections")
        httpx.post(f"{decode.url}/release")
        assert answer.result().json() == {"text": "decode: held"}
        assert ended.result() == 0
    assert [line for line in router.lines if "Traceback" in line] == []


def test_sigterm_ends_within_its_grace_what_does_not_finish(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    router, url = fleet.router([prefill], [decode], "--shutdown-grace-period-secs", "1")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(generate, url, "hang")
        wait_until(lambda: decode.num_seen() == 1, "the request is in flight")
        assert router.terminate() == 0
        assert answer.result().json()["error"]["code"] == "shutting_down"
    wait_until(lambda: decode.seen()["num_hung_up"] == 1, "decode is freed")


def test_taken_port_is_one_line_and_exit_code_1() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        argv = ["--port", str(port), "--prefill", "http://127.0.0.1:1", "--decode", "http://127.0.0.1:2"]
        done = subprocess.run(
            [sys.executable, "-m", "runtime.router", *argv],
            cwd=ROOT, capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == f"error: cannot listen on 127.0.0.1:{port}: Address already in use\n"


def test_ready_line_names_address_and_policies(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    router, url = fleet.router([prefill], [decode], "--decode-policy", "least_in_flight")
    wait_until(lambda: bool(router.lines), "a line")
    assert router.lines[0] == f"router ready on {url}: 1 prefill (round_robin), 1 decode (least_in_flight)\n"


def test_prompt_of_megabytes_reaches_both_workers_whole(fleet: Fleet) -> None:
    prefill, decode = fleet.workers("prefill", "decode")
    _, url = fleet.router([prefill], [decode], "--max-payload-size", "20000000")
    text = "x" * 10_000_000
    assert len(generate(url, text).json()["text"]) == len(text) + len("decode: ")
    wait_until(lambda: num_in_flight(url) == 0, "prefill has answered")
    assert len(prefill.seen()["bodies"][0]["text"]) == len(text)
    response = generate(url, text * 2)
    assert (response.status_code, response.json()["error"]["code"]) == (413, "payload_too_large")


def test_load_is_spread_and_leaves_nothing_behind(fleet: Fleet) -> None:
    workers = fleet.workers("p0", "p1", "d0", "d1")
    router, url = fleet.router(workers[:2], workers[2:], "--policy", "least_in_flight")
    descriptors = Path(f"/proc/{router.popen.pid}/fd")
    with httpx.Client(limits=httpx.Limits(max_connections=16)) as client, ThreadPoolExecutor(16) as pool:

        def post(index: int) -> int:
            return client.post(f"{url}/generate", json={"text": f"{index}"}, timeout=DEADLINE_S).status_code

        assert set(pool.map(post, range(600))) == {200}
    assert all(200 <= worker.num_seen() <= 400 for worker in workers)
    rooms = [body["bootstrap_room"] for worker in workers[2:] for body in worker.seen()["bodies"]]
    assert len(set(rooms)) == 600
    wait_until(lambda: num_in_flight(url) == 0, "the last halves of prefill have ended")
    # Connections are kept, as many as were busy at once; none is left over from each request.
    assert len(list(descriptors.iterdir())) < 300
