"""What the shim tells of its node: HTTP answers, ports, commands, locks; and what it leaves there."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest


class _Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/slow":
            self.server.release.wait(20)  # type: ignore[attr-defined]
        if self.path == "/meet":
            self.server.meeting.wait(60)  # type: ignore[attr-defined]
        if self.path == "/drip":
            self.send_response(200)
            self.end_headers()
            while not self.server.release.wait(0.05):  # type: ignore[attr-defined]
                self.wfile.write(b".")
            return
        self._answer(
            301 if self.path == "/moved" else 200, b"x" * 300_000 if self.path == "/large" else b"ok"
        )

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(503, body + self.headers["Content-Type"].encode())

    def _answer(self, code: int, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Location", "/")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Server)
    server.release = threading.Event()  # type: ignore[attr-defined]
    server.meeting = threading.Barrier(2)  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.release.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def _probe(node, *requests: dict) -> list[dict]:
    return node.ask_names("probe", request={"requests": list(requests)})


def test_probes_are_sent_at_once_and_answered_in_order(node, url):
    """Two of them are answered only when both have come."""
    answers = _probe(
        node,
        {"url": f"{url}/slow", "timeout_s": 0.5},
        {"url": f"{url}/meet", "timeout_s": 60},
        {"url": url, "method": "POST", "body": '{"a": 1}', "timeout_s": 60},
        {"url": f"{url}/drip", "timeout_s": 0.5},
        {"url": f"{url}/moved", "timeout_s": 60},
        {"url": f"{url}/meet", "timeout_s": 60},
    )
    assert [answer["status"] for answer in answers] == [None, 200, 503, None, 301, 200]
    assert [answer["error"] for answer in answers][0:4:3] == ["no answer within 0.5 s"] * 2
    assert (answers[1]["body"], answers[2]["body"]) == ("ok", '{"a": 1}application/json')
    assert all(answer["elapsed_s"] > 0 for answer in answers)


def test_probes_that_reach_nothing_say_why(node, free_port):
    refused, unknown, scheme = _probe(
        node,
        {"url": f"http://127.0.0.1:{free_port()}/"},
        {"url": "http://no-such-host.invalid/", "timeout_s": 10},
        {"url": "file:///etc/passwd"},
    )
    assert refused["error"] == "connection refused"
    assert unknown["error"]
    assert scheme["error"] == "`file:///etc/passwd` is not an http URL"


def test_a_server_that_speaks_another_protocol_is_told(node):
    held = []

    def greet(server: socket.socket) -> None:
        held.append(server.accept()[0])  # open, or what it said would be lost with an unread request
        held[0].sendall(b"SSH-2.0-OpenSSH\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=greet, args=(server,), daemon=True).start()
        (answer,) = _probe(node, {"url": f"http://127.0.0.1:{server.getsockname()[1]}/", "timeout_s": 2})
    assert answer["status"] is None
    assert answer["error"].startswith(("not an HTTP answer", "no answer"))


def test_bodies_are_bounded_and_proxies_ignored(node, url, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    (answer,) = _probe(node, {"url": f"{url}/large"})
    assert (answer["status"], len(answer["body"])) == (200, 256 << 10)


def test_a_taken_port_is_told_with_who_has_it(node, free_port):
    with socket.create_server(("127.0.0.1", free_port())) as server:
        ports = [server.getsockname()[1], free_port()]
        queries = [{"host": "127.0.0.1", "port": port} for port in ports]
        taken, unused = node.ask_names("ports", request={"queries": queries})
        wildcard = node.ask_names("ports", request={"queries": [{"host": "0.0.0.0", "port": ports[0]}]})
        neighbour = node.ask_names("ports", request={"queries": [{"host": "127.0.1.7", "port": ports[0]}]})
    assert (taken["problem"], taken["pid"], taken["process"]) == ("taken", os.getpid(), None)
    own_words = Path("/proc/self/cmdline").read_text().replace("\0", " ").split()
    assert taken["command"].split()[0] == own_words[0]
    assert unused == {"problem": None, "pid": None, "command": None, "process": None}
    assert wildcard[0]["problem"] == "taken"
    assert neighbour[0]["problem"] is None


def test_a_port_of_a_process_of_ours_is_told_by_its_name(node, wait_until):
    program = (
        "import socket, time\n"
        "server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1]); time.sleep(99)"
    )
    pid = node.start_python("a-0.0", program)["pid"]
    wait_until(lambda: node.output("a-0.0").endswith("\n"))
    query = {"host": "127.0.0.1", "port": int(node.output("a-0.0"))}
    (answer,) = node.ask_names("ports", request={"queries": [query]})
    assert (answer["pid"], answer["process"]) == (pid, "demo/a-0.0")


def test_of_two_with_the_same_port_the_one_on_the_address_is_in_the_way(node, wait_until, free_port):
    port, names = free_port(), {"a-0.0": "127.0.1.1", "b-0.0": "127.0.1.2"}
    for name, address in names.items():
        listening = f"server = socket.create_server(('{address}', {port})); print('up')"
        node.start_python(name, f"import socket, time; {listening}; time.sleep(99)")
    for name in names:
        wait_until(lambda name=name: node.output(name) == "up\n")
    queries = [{"host": address, "port": port} for address in names.values()]
    found = node.ask_names("ports", request={"queries": queries})
    assert [each["process"] for each in found] == [f"demo/{name}" for name in names]


def test_who_listens_on_all_addresses_of_both_kinds_is_in_the_way_of_each(node, free_port):
    port = free_port()
    with socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True):
        queries = [{"host": host, "port": port} for host in ("127.0.0.1", "::1", "0.0.0.0")]
        found = node.ask_names("ports", request={"queries": queries})
    assert [(each["problem"], each["pid"]) for each in found] == [("taken", os.getpid())] * 3


@pytest.mark.parametrize("holder", ["itself", "its child"])
def test_a_port_of_ours_is_told_by_its_name_though_its_process_renamed_itself(node, wait_until, holder):
    program = (
        "import os, setproctitle, socket, time\n"
        f"if {holder == 'its child'} and os.fork(): os.wait()\n"
        "setproctitle.setproctitle('x' * 60_000)\n"
        "server = socket.create_server(('127.0.0.1', 0)); print(server.getsockname()[1]); time.sleep(99)"
    )
    node.start("a-0.0", sys.executable, "-u", "-c", program)
    wait_until(lambda: node.output("a-0.0").endswith("\n"))
    query = {"host": "127.0.0.1", "port": int(node.output("a-0.0"))}
    (answer,) = node.ask_names("ports", request={"queries": [query]})
    assert answer["process"] == "demo/a-0.0"
    assert node.stop("a-0.0", grace_s=1)[0]["survivors"] == []


def test_an_address_of_another_machine_cannot_be_bound(node):
    answers = node.ask_names(
        "ports", request={"queries": [{"host": "192.0.2.1", "port": 80}, {"port": 70000}]}
    )
    assert [answer["problem"] for answer in answers] == [
        "`192.0.2.1` is not an address of this node",
        "70000 is not a port",
    ]


def test_a_command_streams_its_lines_and_its_end(node):
    program = "import os, sys; print(os.environ['A']); print('wrong', file=sys.stderr); sys.exit(3)"
    request = {"argv": [sys.executable, "-u", "-c", program], "env": {"A": "ü"}}
    entries = node.ask_lines_names("run", request=request)
    assert entries[-1] == {"exit_code": 3, "signal": None, "error": None}
    assert {"line": "ü", "is_error": False} in entries
    assert {"line": "wrong", "is_error": True} in entries
    missing = node.ask_lines_names("run", request={"argv": ["/no/such"]})
    assert missing[0]["error"].startswith("cannot execute `/no/such`")


@pytest.mark.parametrize("leave", ["close", "terminate"])
def test_a_command_does_not_outlive_its_reader(node, wait_until, is_alive, leave):
    child = subprocess.Popen(node.argv("run"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with child.stdin as stdin:
        stdin.write(json.dumps({"argv": ["sh", "-c", "sleep 99 & echo $!; wait"]}))
    pid = int(json.loads(child.stdout.readline())["line"])
    if leave == "terminate":
        child.terminate()
    child.stdout.close()
    child.wait(timeout=10)
    wait_until(lambda: not is_alive(pid))


def test_forgetting_keeps_what_lives_and_the_last_unlock_leaves_nothing(node):
    owner = {"token": "t1", "who": "me"}
    assert node.ask("lock", request={"owner": owner}) == {"acquired": True, "replaced": None}
    node.start("a-0.0", "sleep", "100")
    node.start("b-0.0", "sleep", "100")
    node.stop("b-0.0")
    assert node.ask("forget") == {"kept": ["a-0.0"]}
    assert [entry["process_id"] for entry in node.ask("status")] == ["a-0.0"]
    node.stop("a-0.0")
    assert node.ask("forget") == {"kept": []}
    assert node.ask("unlock", request={"token": "another"}) == {"released": False}
    (node.root / f"shim-{'0' * 64}.py").touch()
    assert node.ask("unlock", request={"token": "t1"}) == {"released": True}
    assert not node.root.exists()


def test_nodes_that_share_a_file_system_leave_each_others_processes_alone(node):
    node.start("a-0.0", "sleep", "100", node="n1")
    node.start("b-0.0", "true", node="n2")
    assert [entry["process_id"] for entry in node.ask("status", request={"node": "n1"})] == ["a-0.0"]
    assert node.ask("forget", request={"node": "n3"}) == {"kept": ["a-0.0"]}
    assert node.run_dir("b-0.0").is_dir()
    node.stop("a-0.0", "b-0.0")
    assert node.ask("forget", request={"node": "n1"}) == {"kept": []}
    assert (node.run_dir("a-0.0").exists(), node.run_dir("b-0.0").is_dir()) == (False, True)
    (node.root / "demo" / ".removing-c-0.0" / "000001").mkdir(parents=True)  # of a call that was killed
    assert node.ask("forget", request={"node": "n2"}) == {"kept": []}
    assert not node.root.exists()


def test_a_held_lock_names_its_holder_and_yields_to_a_matching_replacement_only(node):
    first, second, third = ({"token": token} for token in ("t1", "t2", "t3"))
    node.ask("lock", request={"owner": first})
    assert node.ask("lock", request={"owner": second}) == {"acquired": False, "holder": first}
    assert node.ask("lock", request={"owner": second, "replace": "t1"}) == {
        "acquired": True,
        "replaced": first,
    }
    # The third operator saw the first one dead, too, but came later: the lock is the second's.
    assert node.ask("lock", request={"owner": third, "replace": "t1"}) == {
        "acquired": False,
        "holder": second,
    }
    assert node.ask("holder") == {"holder": second, "pending": []}


def test_a_damaged_lock_file_locks_nobody_out(node):
    node.ask("lock", request={"owner": {"token": "t1"}})
    (node.root / "demo" / "operator.json").write_bytes(b'{"tok')
    assert node.ask("lock", request={"owner": {"token": "t2"}})["acquired"]


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["explode"], "unknown verb `explode`"),
        (["status"], "0 names given, wanted 2"),
        (["status", "/tmp", "../x"], "`../x` is not a name"),
    ],
)
def test_a_request_that_makes_no_sense_is_answered(node, argv, error):
    assert node.ask_names(*argv) == {"error": error}


# --- What is proven after the end ---------------------------------------------------------------------------


@pytest.fixture
def nvidia_smi(tmp_path, monkeypatch):
    """`nvidia_smi(text, code)` puts a program of that name on PATH: no machine of ours has such devices."""

    def install(text: str, code: int = 0) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    return install


def test_device_memory_held_for_our_dead_processes_is_told(node, nvidia_smi):
    """Of others', and of numbers that live again, nothing."""
    nvidia_smi(f"999999, 512, GPU-1\\n999998, 5, GPU-1\\n{os.getpid()}, 7, GPU-2\\n999997, [N/A], GPU-2\\n")
    found = node.ask("prove", request={"queries": [], "pids": [999999, 999997, os.getpid()]})
    assert found["devices"] == {
        "held": [
            {"pid": 999999, "used_mib": 512, "device": "GPU-1"},
            {"pid": 999997, "used_mib": None, "device": "GPU-2"},
        ],
        "unproven": None,
    }


def test_a_driver_that_does_not_answer_proves_nothing(node, nvidia_smi):
    nvidia_smi("Failed to initialize NVML", 255)
    devices = node.ask("prove", request={"pids": []})["devices"]
    assert devices == {"held": [], "unproven": "`nvidia-smi` failed: Failed to initialize NVML"}


def test_device_memory_counts_the_whole_tree_and_is_asked_for(node, nvidia_smi):
    pid = node.start("a-0.0", "sleep", "100")["pid"]
    nvidia_smi(f"{pid}, 512, GPU-1\\n{pid}, 8, GPU-2\\n{os.getpid()}, 7, GPU-2\\n")
    (told,) = node.ask("status", request={"node": None, "devices": True})
    (silent,) = node.ask("status", request={"node": None})
    assert (told["device_bytes"], silent.get("device_bytes")) == (520 * 2**20, None)


def test_what_lives_and_what_listens_is_told(node):
    node.start("a-0.0", "sleep", "100")
    with socket.create_server(("127.0.0.1", 0)) as server:
        queries = [{"host": "127.0.0.1", "port": server.getsockname()[1]}]
        found = node.ask("prove", request={"queries": queries, "pids": []})
    assert found["processes"] == ["a-0.0"]
    assert [port["pid"] for port in found["ports"]] == [os.getpid()]


def test_history_is_appended_and_bounded(node):
    for number in range(3):
        node.ask("note", request={"entry": {"n": number, "text": "x" * 10}})
    path = node.root / "demo" / "history.jsonl"
    with path.open("a") as file:
        file.write('{"cut off')
    node.ask("note", request={"entry": {"n": 3}})
    assert [entry["n"] for entry in node.ask("history")] == [0, 1, 2, 3]
    path.write_text("".join(json.dumps({"n": number, "text": "x" * 1000}) + "\n" for number in range(300)))
    node.ask("note", request={"entry": {"n": 300}})
    kept = [entry["n"] for entry in node.ask("history")]
    assert kept[-1] == 300
    assert 100 < len(kept) < 200
    assert node.ask("note", request={"entry": {"text": "x" * 20_000}})["error"].startswith("`entry` is not")


def test_several_calls_in_one_fail_one_by_one(node):
    place = [str(node.root), "demo"]
    calls = [
        {"verb": "start", "names": [*place, "a-0.0"], "request": node.spec("a-0.0", "sleep", "100")},
        {"verb": "explode", "names": place},
        {"verb": "status", "names": place},
    ]
    started, failed, status = node.ask_names("do", request={"calls": calls})
    assert started["answer"]["started"] is True
    assert failed == {"error": "unknown verb `explode`"}
    assert [entry["process_id"] for entry in status["answer"]] == ["a-0.0"]
    assert "can't be one of several" in node.ask_names("do", request={"calls": [{"verb": "logs"}]})["error"]


def test_the_same_start_asked_for_twice_is_one_start_even_when_it_has_ended(node, wait_until):
    first = node.start("a-0.0", "true", start_id="s1")
    node.wait_for_exit("a-0.0")
    assert node.start("a-0.0", "true", start_id="s1") == first
    assert node.start("a-0.0", "true", start_id="s2")["run_id"] == "000002"


def test_byte_code_is_kept_beside_the_shim_and_a_damaged_one_is_done_without(node):
    node.ask("status")
    (code,) = node.archive.parent.glob("shim.*.pyc")
    whole = code.read_bytes()
    assert code.stat().st_mode & 0o777 == 0o600
    for damaged in (b"", whole[:100], whole[:-1] + b"x", b"x" + whole[1:]):
        code.write_bytes(damaged)
        assert node.ask("status") == []
        assert code.read_bytes()[:12] == whole[:12]
