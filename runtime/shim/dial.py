"""The verb `dial`: connect to the doors of peers (`runtime/shim/meeting.py`) and hear what comes."""

from __future__ import annotations

import time

from .meeting import MAX_TARGETS, PADDING, greeting
from .record import RequestError, checked_nodes
from .sockets import Socket, connect, socket
from .threads import begin

AT_ONCE = 64  # threads that dial
DEFAULT_TIMEOUT_S = 3.0


def dial_from(nodes: object) -> list[dict]:
    """`{"outcomes"}` of each node's `{"targets", "timeout_s"}`."""
    return [{"outcomes": dial(node.get("targets"), node.get("timeout_s"))} for node in checked_nodes(nodes)]


def dial(targets: object, timeout_s: object) -> list[dict]:
    """`{"outcome", "text"}` for each `{"host", "port", "token"}`; without a token a connection is enough.

    Outcomes: `met`, `refused`, `silent` (no answer at all), `unroutable`, `stranger` (somebody else answers),
    `mute` (accepts and says nothing), `stalled` (full packets don't arrive), `failed`.
    """
    if not isinstance(targets, list) or len(targets) > MAX_TARGETS:
        raise RequestError("`targets` is not a list of at most %d" % MAX_TARGETS)
    limit_s = float(timeout_s) if isinstance(timeout_s, (int, float)) else DEFAULT_TIMEOUT_S
    answers: list[dict] = [{} for _ in targets]
    pending = list(enumerate(targets))

    def work() -> None:
        while True:
            try:
                index, target = pending.pop()
            except IndexError:
                return
            answers[index] = _visit(target, limit_s)

    for ended in [begin(work) for _ in range(min(AT_ONCE, len(targets)))]:
        ended.acquire()
    return answers


def _visit(target: object, limit_s: float) -> dict:
    if not isinstance(target, dict) or not isinstance(target.get("port"), int):
        return _outcome("failed", "a target has no `port`")
    deadline = time.monotonic() + limit_s
    try:
        connection = connect(str(target.get("host")), target["port"], limit_s)
    except socket.timeout:
        return _outcome("silent", "no answer within %g s" % limit_s)
    except ConnectionRefusedError:
        return _outcome("refused", "connection refused")
    except socket.gaierror as error:
        return _outcome("unroutable", "its name has no address: %s" % error.strerror)
    except OSError as error:
        return _outcome("unroutable", (error.strerror or str(error)).lower())
    with connection:
        return _hear(connection, target.get("token"), deadline)


def _hear(connection: Socket, token: object, deadline: float) -> dict:
    if not isinstance(token, str):
        return _outcome("met", "")
    wanted, heard = greeting(token), b""
    num_wanted = len(wanted) + len(PADDING)
    try:
        while len(heard) < num_wanted:
            connection.settimeout(max(0.01, deadline - time.monotonic()))
            chunk = connection.recv(65536)
            if not chunk:
                break
            heard += chunk
    except socket.timeout:
        if not heard:
            return _outcome("mute", "it accepts the connection and says nothing")
    except OSError as error:
        return _outcome("failed", "the connection broke: %s" % (error.strerror or error))
    if not heard.startswith(wanted):
        return _outcome("stranger", "another program answers there")
    if len(heard) < num_wanted:
        return _outcome("stalled", "the connection opens, but full packets don't arrive")
    return _outcome("met", "")


def _outcome(outcome: str, text: str) -> dict:
    return {"outcome": outcome, "text": text}
