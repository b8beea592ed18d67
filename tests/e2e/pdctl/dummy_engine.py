"""An engine in one file, found by its entry point: what a plug-in outside pdctl looks like.

Its process is this same file: a small HTTP server that behaves as its environment says, so that tests can see
every way in which an engine comes up, fails or refuses to go. Standard library only, so it starts at once.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

# --- The process --------------------------------------------------------------------------------------------


class Answers(http.server.BaseHTTPRequestHandler):
    began = time.monotonic()
    num_requests = 0

    def do_GET(self) -> None:
        if self.path == "/metrics":
            self.reply(200, f"dummy_requests_total {Answers.num_requests}\n".encode())
        elif not self.is_ready():
            self.reply(503, b"{}")
        else:
            self.reply(200, b"{}")

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        Answers.num_requests += 1
        status = int(os.environ.get("DUMMY_GENERATE_STATUS", "200"))
        self.reply(status, json.dumps({"text": "dummy", "meta_info": {}}).encode())

    def is_ready(self) -> bool:
        sign = os.environ.get("DUMMY_READY_WITH_FILE")
        is_late = time.monotonic() - self.began >= float(os.environ.get("DUMMY_READY_AFTER_S", "0"))
        return is_late and (sign is None or os.path.exists(sign))  # noqa: PTH110 - pathlib loads slowly

    def reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


class ServerV6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def main() -> None:
    host, port = sys.argv[sys.argv.index("--host") + 1], int(sys.argv[sys.argv.index("--port") + 1])
    print(f"dummy engine on {host}:{port}", flush=True)
    if os.environ.get("DUMMY_IGNORE_TERM"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    else:
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.signal(signal.SIGUSR1, lambda *_: _give_up())
    if os.environ.get("DUMMY_DETACHED_CHILD"):
        # A grandchild in a session of its own, as some launchers leave behind.
        subprocess.Popen(["sleep", "1000"], start_new_session=True)
    if os.environ.get("DUMMY_ESCAPED_CHILD"):
        _escape()
    if exit_after := os.environ.get("DUMMY_EXIT_AFTER_S"):
        threading.Thread(target=_exit_after, args=(float(exit_after),), daemon=True).start()
    server = (ServerV6 if ":" in host else http.server.ThreadingHTTPServer)((host, port), Answers)
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.serve_forever()


def _escape() -> None:
    """A daemon without a mark: no parent, session, variable or open file of ours, and deaf to TERM."""
    if os.fork() != 0:
        os.wait()
        return
    os.setsid()
    if os.fork() != 0:
        os._exit(0)
    os.closerange(0, 1024)
    os.chdir("/")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # lasts through exec
    os.execve("/bin/sleep", ["escaped", "1000"], {})


def _exit_after(seconds: float) -> None:
    time.sleep(seconds)
    _give_up()


def _give_up() -> None:
    print("dummy engine gives up: no luck today", flush=True)
    os._exit(int(os.environ.get("DUMMY_EXIT_CODE", "3")))


if __name__ == "__main__":
    main()
else:
    from pdctl.plan.model import Command, Probe
    from pdctl.plan.ports import PortNeed

    class DummyEngine:
        owned_flags = frozenset({"host", "port"})
        requests_metric = "dummy_requests_total"

        def port_needs(self, part, topology):
            base = part.port or (21600 if part.name == "prefill" else 21650)
            http = PortNeed(name="http", base=base, requested=part.port is not None, path=(part.name, "port"))
            if part.name == "decode":
                return (http,)
            base = part.bootstrap_port or 21699
            return (http, PortNeed(name="bootstrap", base=base, path=(part.name, "bootstrap_port")))

        def command(self, slot, layout):
            role = layout.topology.prefill if slot.role == "prefill" else layout.topology.decode
            http = slot.endpoint("http")
            argv = [slot.node.python, __file__, "--host", http.host, "--port", str(http.port)]
            for name, value in role.args.items():
                argv += [f"--{name}", str(value)]
            return Command(argv=tuple(argv), env={**layout.topology.defaults.env, **role.env})

        def ready(self, slot, layout):
            http = slot.endpoint("http")
            deadline_s = layout.topology.health.ready_deadline_s
            return Probe(host=http.host, port=http.port, path="/health", deadline_s=deadline_s)

        def prepare(self, topology, python):
            return ()

        def rules(self):
            return ()

    PROGRAM = DummyEngine()
