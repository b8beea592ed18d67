"""The `ascend` backend and its library: the real one as far as it goes here, else a double held to it."""

from __future__ import annotations

import inspect
import json
import queue
import subprocess
import sys
import threading

import pytest

from runtime.kv.page_runs import Write
from runtime.transfer.ascend import open_backend
from runtime.transfer.base import POOL, BackendOptions, TransferError

_CALLED = (
    "initialize",
    "get_rpc_port",
    "register_memory",
    "unregister_memory",
    "batch_transfer_sync_write",
    "unInitialize",
)
_ASK_REAL_LIBRARY = """
import json, re
import memfabric_hybrid as library
names = json.loads(input())
def parameters(name):
    listed = getattr(library.TransferEngine, name).__doc__.partition("(")[2]
    return re.findall(r"(?:^|, )(\\w+): ", listed.partition(") -> ")[0])
answer = {name: parameters(name) for name in names}
print(json.dumps([answer, list(library.TransDataOpType.__members__)]))
"""
_OPEN_WITH_REAL_LIBRARY = """
from runtime.transfer.ascend import open_backend
from runtime.transfer.base import TransferError
try:
    open_backend(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=1.0)
except TransferError as error:
    print(error)
"""


class Everywhere:
    def covers(self, offset: int, num_bytes: int) -> bool:
        return True


def _run(source: str, words: str = "") -> str:
    """In a process of its own: the library puts its symbols before those of others. Gives the last line."""
    done = subprocess.run(
        [sys.executable, "-c", source], input=words, capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.splitlines()[-1]


def test_the_double_has_the_signatures_of_the_released_library(memfabric):
    real, protocols = json.loads(_run(_ASK_REAL_LIBRARY, json.dumps(_CALLED)))
    ours = {
        name: list(inspect.signature(getattr(memfabric.TransferEngine, name)).parameters) for name in _CALLED
    }
    assert ours == real
    assert list(memfabric.TransDataOpType.__members__) == protocols


def test_a_machine_without_an_ascend_driver_is_told_so():
    assert _run(_OPEN_WITH_REAL_LIBRARY) == (
        "ascend cannot start over sdma on NPU 0 of 127.0.0.1: code -1; "
        "this machine needs an Ascend driver that memfabric supports"
    )


def _open(**options):
    return open_backend(
        host="127.0.0.1",
        advertised_host="127.0.0.1",
        stall_timeout_s=5.0,
        options=BackendOptions(**options),
    )


def test_the_library_is_told_role_device_and_protocol(memfabric, monkeypatch):
    started = []
    initialize = memfabric.TransferEngine.initialize

    def note(engine, *arguments):
        code = initialize(engine, *arguments)
        started.append(engine.started_as)
        return code

    monkeypatch.setattr(memfabric.TransferEngine, "initialize", note)
    for options in ({"is_receiver": True}, {"device_id": 3, "protocol": "device_rdma"}):
        _open(**options).close()
    sdma, device_rdma = memfabric.TransDataOpType.SDMA, memfabric.TransDataOpType.DEVICE_RDMA
    assert started == [
        ("tcp://127.0.0.1", "127.0.0.1", "Decode", 0, sdma),
        ("tcp://127.0.0.1", "127.0.0.1", "Prefill", 3, device_rdma),
    ]


def test_an_unknown_protocol_is_told_the_known_ones(memfabric):
    with pytest.raises(TransferError, match="no protocol `pigeons`, it has sdma, host_rdma, device_rdma"):
        _open(protocol="pigeons")


@pytest.fixture
def sides(memfabric):
    """(a session to the receiver, sending 10 bytes of 5, the receiver, its memory)"""
    sender, receiver = _open(num_threads=1, num_queues=1), _open(is_receiver=True)
    source, landed = bytearray(b"\x05" * 10), bytearray(10)
    sender.register(POOL, memoryview(source))
    receiver.register(POOL, memoryview(landed))
    receiver.allow(1, Everywhere())
    yield sender.connect(receiver.endpoint()), receiver, landed
    sender.close()
    receiver.close()


def _send(session) -> queue.SimpleQueue[str | None]:
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    session.send(1, [Write(0, 0, 10)], answers.put)
    return answers


@pytest.mark.parametrize("code", [-1, 7])
def test_a_code_of_the_library_fails_the_send(memfabric, monkeypatch, sides, code):
    session, _, landed = sides
    monkeypatch.setattr(memfabric.TransferEngine, "batch_transfer_sync_write", lambda *arguments: code)
    assert f"ascend failed a write: code {code}" in _send(session).get(timeout=5)
    monkeypatch.undo()
    assert landed == bytes(10)


def test_a_call_that_blocks_keeps_the_memory_in_quarantine(memfabric, monkeypatch, sides):
    session, receiver, landed = sides
    write, begun, go_on = (
        memfabric.TransferEngine.batch_transfer_sync_write,
        threading.Event(),
        threading.Event(),
    )

    def wait_and_write(*arguments):
        begun.set()
        assert go_on.wait(10)
        return write(*arguments)

    monkeypatch.setattr(memfabric.TransferEngine, "batch_transfer_sync_write", wait_and_write)
    answers = _send(session)
    assert begun.wait(5)
    quiet = threading.Event()
    receiver.revoke(1, quiet.set)
    assert not quiet.is_set()
    go_on.set()
    assert answers.get(timeout=5) is None
    assert quiet.wait(5)
    assert landed == b"\x05" * 10
