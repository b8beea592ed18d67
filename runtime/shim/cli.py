"""The command line of the shim: one verb, one JSON request, one JSON answer."""

from __future__ import annotations

import json
import os
import sys

from .record import RequestError, check_name

MAX_REQUEST_BYTES = 8 << 20
STREAMING = ("logs", "run")  # verbs that print their own lines


def main(argv: list[str] | None = None) -> int:
    """Answer a request: exit code 0, or 2 with `{"error": ...}` where that is not possible."""
    verb, *names = (sys.argv[1:] if argv is None else argv) or [""]
    try:
        request = _read_request()
        answer = _call(verb, names, request)
    except (RequestError, OSError) as error:  # OSError: a full disk, a directory of another user
        _print({"error": str(error)})
        return 2
    if verb not in STREAMING:
        _print(answer)
    return 0


def _call(verb: str, names: list[str], request: dict) -> object:
    """Imports are inside, so that a call compiles only what it needs: the packed file has no byte code."""
    if verb == "start":
        from .start import start

        root, deployment, process_id = _names(names, 3, 3)
        return start(root, deployment, process_id, request)
    if verb == "status":
        from .status import status

        root, deployment = _names(names, 2, 2)
        return status(root, deployment, request.get("node"))
    if verb == "stop":
        from .stop import stop

        root, deployment, *process_ids = _names(names, 3)
        return stop(root, deployment, process_ids, request.get("grace_s"))
    if verb == "logs":
        from .logs import stream_logs

        root, deployment, *process_ids = _names(names, 3)
        return stream_logs(root, deployment, process_ids, request.get("tail"), bool(request.get("follow")))
    if verb in ("list", "forget", "keep", "kept", "lock", "unlock", "holder"):
        return _call_housekeeping(verb, names, request)
    return _call_node(verb, request)


def _call_housekeeping(verb: str, names: list[str], request: dict) -> object:
    from . import keep, oplock

    if verb == "list":
        return keep.list_deployments(*_names(names, 1, 1))
    root, deployment = _names(names, 2, 2)
    if verb == "forget":
        return keep.forget(root, deployment)
    if verb == "keep":
        return keep.keep(root, deployment, request.get("content"))
    if verb == "kept":
        return keep.kept(root, deployment)
    if verb == "lock":
        return oplock.lock(root, deployment, request.get("owner"), request.get("replace"))
    if verb == "unlock":
        return oplock.unlock(root, deployment, request.get("token"))
    return oplock.holder(root, deployment)


def _call_node(verb: str, request: dict) -> object:
    if verb == "probe":
        from .probe import probe

        return probe(request.get("requests"))
    if verb == "ports":
        from .ports import ports

        return ports(request.get("queries"))
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
    text = b"" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.buffer.read(MAX_REQUEST_BYTES + 1)
    if len(text) > MAX_REQUEST_BYTES:
        raise RequestError("the request is longer than %d bytes" % MAX_REQUEST_BYTES)
    try:
        request = json.loads(text or b"{}")
    except ValueError as error:
        raise RequestError("the request is not JSON: %s" % error) from error
    if not isinstance(request, dict):
        raise RequestError("the request is not a JSON object")
    return request


def _print(answer: object) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
