#!/usr/bin/python3
"""In the place of an engine's interpreter: notes what a rank was told and where it runs, and answers HTTP.

RANK_NOTES is the folder for notes, one JSON file for each process. A file `fail.PROCESS` there makes that
process end with 7 at its start.
"""

import http.server
import json
import os
import signal
import sys
from pathlib import Path

NOTES = Path(os.environ["RANK_NOTES"])
PROCESS = os.environ["PDCTL_PROCESS"].split("/")[1]


def flag(name, default=None):
    return sys.argv[sys.argv.index(name) + 1] if name in sys.argv else default


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.reply(b"{}")

    def do_POST(self):
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.reply(b'{"text": "a rank", "meta_info": {}}')

    def reply(self, body):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format, *args):
        pass


def note(what):
    (NOTES / f"{PROCESS}.json").write_text(json.dumps(what))


def end(*_):
    note({"argv": sys.argv[1:], "env": dict(os.environ), "was_asked": True})
    os._exit(0)


signal.signal(signal.SIGTERM, end)
note({"argv": sys.argv[1:], "env": dict(os.environ), "was_asked": False})
if (NOTES / f"fail.{PROCESS}").exists():
    print("no luck today", flush=True)
    sys.exit(7)
if flag("--node-rank", "0") != "0":
    while True:
        signal.pause()
http.server.ThreadingHTTPServer((flag("--host"), int(flag("--port"))), Answers).serve_forever()
