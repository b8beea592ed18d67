"""The released sglang-router, started by our command, asks for a key that stands in no command line."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import Inventory, Node
from pdctl.plan.model import ProcessSpec
from pdctl.topology.load import load_text
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow

KEY = "a-key-that-nobody-may-see"
TOPOLOGY = """\
schema: pdctl/v1
name: demo
model: {{path: /models/demo}}
engine: {{kind: sglang, version: "0.5.23"}}
transfer: {{backend: mooncake_tcp}}
prefill: {{}}
decode: {{}}
router: {{kind: sglang_router, port: {port}, metrics_port: {metrics}, api_key_env: DEMO_KEY}}
"""


def router_of(port: int, metrics: int) -> ProcessSpec:
    topology = load_text(TOPOLOGY.format(port=port, metrics=metrics)).require()
    engine, router = plugins.program("engines", "sglang"), plugins.program("routers", "sglang_router")
    assert engine is not None
    assert router is not None
    here = Inventory(nodes=(Node(name="here", address="127.0.0.1", python=sys.executable),))
    spec = compile_plan(topology, here, Programs(engine=engine, router=router)).process("router-0.0")
    assert spec is not None
    return spec


@pytest.fixture
def router(tmp_path: Path, free_port: Callable[[], int]) -> Iterator[tuple[str, int]]:
    """Its URL and process id. No instance is behind it, so a request that it lets in ends with 503."""
    port = free_port()
    with (tmp_path / "log").open("wb") as log:
        environment = {**os.environ, "DEMO_KEY": KEY}
        argv = router_of(port, free_port()).argv
        started = subprocess.Popen(argv, stdout=log, stderr=log, env=environment)
    url = f"http://127.0.0.1:{port}"
    try:

        def is_live() -> bool:
            assert started.poll() is None, (tmp_path / "log").read_text()
            try:
                return httpx.get(f"{url}/liveness", timeout=30).is_success
            except httpx.TransportError:
                return False

        wait_until(is_live, "the router is live")
        yield url, started.pid
    finally:
        started.kill()
        started.wait()
    assert KEY not in (tmp_path / "log").read_text()


def test_a_request_needs_the_key_and_the_command_line_lacks_it(router: tuple[str, int]) -> None:
    url, pid = router
    body = {"text": "hello", "sampling_params": {"max_new_tokens": 1}}
    assert httpx.post(f"{url}/generate", json=body, timeout=60).status_code == 401
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.post(f"{url}/generate", json=body, headers=headers, timeout=60).status_code == 503
    assert KEY.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_without_the_variable_the_router_says_so(free_port: Callable[[], int]) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "DEMO_KEY"}
    ran = subprocess.run(
        router_of(free_port(), free_port()).argv,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, "DEMO_KEY is not set on this node")
