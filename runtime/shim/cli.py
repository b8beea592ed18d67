"""The command line of the shim: one verb, one JSON request, one JSON answer."""

from __future__ import annotations

import os
import sys

from . import jsontext
from .record import RequestError, check_name
from .signals import signal

REQUEST_TIMEOUT_S = 60
MAX_REQUEST_BYTES = 8 << 20
MAX_CALLS = 1024
HOUSEKEEPING = (
    *("list", "tidy", "forget", "keep", "kept", "prove"),
    *("lock", "unlock", "holder", "note", "history"),
)
STREAMING = ("logs", "run", "hold")  # verbs that print their own lines


def main(argv: list[str] | None = None) -> int:
    """Answer a request: exit code 0, or 2 with `{"error": ...}` where that is not possible.

    Only `hold` has a code of its own: that of the process.
    """
    verb, *names = (sys.argv[1:] if argv is None else argv) or [""]
    try:
        request = _read_request()
        answer = _call(verb, names, request)
    except (RequestError, OSError) as error:  # OSError: a full disk, a directory of another user
        _print({"error": str(error)})
        return 2
    if verb not in STREAMING:
        _print(answer)
    return answer if verb == "hold" and isinstance(answer, int) else 0


def _call(verb: str, names: list[str], request: dict) -> object:
    """Imports are inside, so that a call loads only what it needs."""
    if verb == "do":
        return _call_each(request.get("calls"))
    if verb in ("start", "stop"):
        return _call_changing(verb, names, request)
    if verb == "hold":
        from .hold import hold

        root, deployment, process_id = _names(names, 3, 3)
        return hold(root, deployment, process_id, request)
    if verb == "status":
        from .status import status

        root, deployment = _names(names, 2, 2)
        settle_s = request.get("settle_s")
        if isinstance(settle_s, (int, float)):
            from .in_flight import settle

            settle(root, deployment, settle_s)
        return status(root, deployment, request.get("node"), asks_devices=request.get("devices") is True)
    if verb == "tails":
        from .logs import tails

        root, deployment = _names(names, 2, 2)
        return tails(root, deployment, request.get("process_ids"), request.get("num_lines"))
    if verb == "logs":
        from .logs import stream_logs

        root, deployment, *process_ids = _names(names, 3)
        return stream_logs(root, deployment, process_ids, request)
    if verb in ("survey", "dial", "hang-up"):
        return _call_doctor(verb, names, request)
    if verb in HOUSEKEEPING:
        return _call_housekeeping(verb, names, request)
    return _call_node(verb, request)


def _call_changing(verb: str, names: list[str], request: dict) -> object:
    """Known as long as it goes on, to operators who come after one that died."""
    from .in_flight import enter, leave

    root, deployment, *process_ids = _names(names, 3, 3 if verb == "start" else None)
    call = enter(root, deployment, verb == "start")
    try:
        if verb == "start":
            from .start import start

            return start(root, deployment, process_ids[0], request)
        from .stop import stop

        return stop(root, deployment, process_ids, request.get("grace_s"))
    finally:
        leave(call)


def _call_each(calls: object) -> list[dict]:
    """Several calls in one: starting Python, and reaching the node, costs more than most verbs do.

    An entry of the answer is `{"answer"}`, or `{"error"}` where that call alone could not be served.
    """
    if not isinstance(calls, list) or len(calls) > MAX_CALLS:
        raise RequestError("`calls` is not a list of at most %d" % MAX_CALLS)
    answers = []
    for call in calls:
        verb, names, request = (call.get(key) for key in ("verb", "names", "request"))
        if verb in STREAMING or verb == "do":
            raise RequestError("`%s` can't be one of several calls" % verb)
        try:
            answers.append({"answer": _call(verb, names or [], request or {})})
        except (RequestError, OSError) as error:
            answers.append({"error": str(error)})
    return answers


def _call_housekeeping(verb: str, names: list[str], request: dict) -> object:
    from . import history, keep, oplock

    if verb == "list":
        return keep.list_deployments(*_names(names, 1, 1))
    if verb == "tidy":
        return keep.tidy(*_names(names, 1, 1))
    root, deployment = _names(names, 2, 2)
    if verb == "forget":
        return keep.forget(root, deployment, request.get("node"), bool(request.get("keeps_plan")))
    if verb == "keep":
        return keep.keep(root, deployment, request)
    if verb == "kept":
        return keep.kept(root, deployment)
    if verb == "lock":
        return oplock.lock(root, deployment, request.get("owner"), request.get("replace"))
    if verb == "unlock":
        return oplock.unlock(root, deployment, request.get("token"))
    if verb == "note":
        return history.note(root, deployment, request.get("entry"))
    if verb == "history":
        return history.history(root, deployment)
    if verb == "prove":
        from .prove import prove

        return prove(root, deployment, request)
    return oplock.holder(root, deployment)


def _call_doctor(verb: str, names: list[str], request: dict) -> object:
    """Each verb takes a list, one entry for each node that this machine stands for."""
    nodes = request.get("nodes")
    if verb == "survey":
        from .survey import survey

        (root,) = _names(names, 1, 1)
        return survey(root, nodes)
    if verb == "dial":
        from .dial import dial_from

        return dial_from(nodes)
    from .meeting import hang_up

    return hang_up(nodes)


def _call_node(verb: str, request: dict) -> object:
    if verb == "probe":
        from .probe import probe

        return probe(request.get("requests"))
    if verb == "ports":
        from .ports import ports

        return ports(request.get("queries"))
    if verb == "route":
        from .route import route

        return route(request.get("targets"))
    if verb == "run":
        from .command import run

        return run(request)
    raise RequestError("unknown verb `%s`" % verb)


def _names(names: list[str], least: int, most: int | None = None) -> list[str]:
    """ROOT as one real path, so that equal roots are equal text; then names that can't leave it."""
    if len(names) < least or (most is not None and len(names) > most):
        raise RequestError("%d names given, wanted %d" % (len(names), least))
    for name in names[1:]:
        check_name(name)
    return [os.path.realpath(os.path.expanduser(names[0])), *names[1:]]


def _read_request() -> dict:
    """Bounded in time too: a server may take hours to see that its peer has vanished, and end our input."""
    signal.alarm(REQUEST_TIMEOUT_S)
    text = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    signal.alarm(0)
    if len(text) > MAX_REQUEST_BYTES:
        raise RequestError("the request is longer than %d bytes" % MAX_REQUEST_BYTES)
    try:
        request = jsontext.loads(text or b"{}")
    except ValueError as error:
        raise RequestError("the request is not JSON: %s" % error) from error
    if not isinstance(request, dict):
        raise RequestError("the request is not a JSON object")
    return request


def _print(answer: object) -> None:
    sys.stdout.write(jsontext.dumps(answer) + "\n")
    sys.stdout.flush()
