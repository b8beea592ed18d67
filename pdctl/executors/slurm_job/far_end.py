"""Runs on a node as the task of one step, and runs commands there for whoever started the step.

Each line of its input is a command, each line of its output how one ended; both are JSON, what goes into and
out of commands is base64. Its lines begin with the word that it was started with, unlike what a site's prolog
prints. It ends with its input, once all commands have ended. It is sent as text: the standard library alone,
of Python 3.8.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from typing import Any

MAX_OUTPUT_BYTES = 64 << 20
_writing = threading.Lock()


def main() -> None:
    """Serve until the input ends."""
    _tell({})
    for line in sys.stdin.buffer:
        threading.Thread(target=_serve, args=(json.loads(line),)).start()


def _serve(request: dict[str, Any]) -> None:
    argv, limit_s = request["argv"], request["timeout_s"]
    try:
        done = subprocess.run(
            argv,
            input=base64.b64decode(request["stdin"]),
            capture_output=True,
            timeout=limit_s,
            start_new_session=True,
            check=False,
        )
    except (FileNotFoundError, PermissionError) as error:
        _tell({"id": request["id"], "code": 127, "stdout": "", "stderr": _text(str(error).encode())})
    except subprocess.TimeoutExpired:
        _tell({"id": request["id"], "lost": f"no answer within {limit_s:g} s"})
    else:
        if max(len(done.stdout), len(done.stderr)) > MAX_OUTPUT_BYTES:
            _tell({"id": request["id"], "lost": f"a command gave more than {MAX_OUTPUT_BYTES >> 20} MiB"})
            return
        outputs = {"stdout": _text(done.stdout), "stderr": _text(done.stderr)}
        _tell({"id": request["id"], "code": done.returncode, **outputs})


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _tell(answer: dict[str, object]) -> None:
    with _writing:
        sys.stdout.write(f"{sys.argv[1]}{json.dumps(answer)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
