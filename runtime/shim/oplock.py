"""The verbs `lock`, `unlock` and `holder`: one operator at a time works on a deployment.

The record is whatever the operator says of itself, with a `token`. Whether a holder is dead only its own
machine can tell, so that is not judged here: who has judged it names the dead holder's token in `replace`,
and gets the lock only if that token still holds it. A flock on a guard file makes each step one step.
"""

from __future__ import annotations

import os

from .keep import RECORD, kept, remove_if_unused
from .record import RequestError, lock_in, read_json, write_json

GUARD = "operator.guard"


def lock(root: str, deployment: str, owner: object, replace: object) -> dict:
    """`{"acquired": true, "replaced": holder or null}` or `{"acquired": false, "holder"}`."""
    if not isinstance(owner, dict) or not isinstance(owner.get("token"), str):
        raise RequestError("`owner` has no token")
    directory = os.path.join(root, deployment)
    guard = lock_in(directory, GUARD, wait=True)
    try:
        path = os.path.join(directory, RECORD)
        held = read_json(path)
        if held and held.get("token") not in (owner["token"], replace):
            return {"acquired": False, "holder": held}
        write_json(path, owner)
        return {"acquired": True, "replaced": held if held and held.get("token") == replace else None}
    except OSError as error:
        return {"acquired": False, "error": "cannot write the lock: %s" % error}
    finally:
        _leave(guard)


def unlock(root: str, deployment: str, token: object) -> dict:
    """`{"released": bool}`: false when this token does not hold the lock."""
    directory = os.path.join(root, deployment)
    if not os.path.isdir(directory):
        return {"released": False}
    guard = lock_in(directory, GUARD, wait=True)
    try:
        path = os.path.join(directory, RECORD)
        is_ours = read_json(path).get("token") == token
        if is_ours:
            os.unlink(path)
        if is_ours or not os.path.exists(path):  # there may have been no lock here: then the guard is ours
            os.unlink(os.path.join(directory, GUARD))
        if not is_ours:
            return {"released": False}
        remove_if_unused(root, deployment)
        return {"released": True}
    finally:
        _leave(guard)


def holder(root: str, deployment: str) -> dict:
    """Who holds the lock (or null), and the nodes on which an end is not finished. Reads only."""
    held = read_json(os.path.join(root, deployment, RECORD)) or None
    return {"holder": held, "pending": kept(root, deployment)["pending"]}


def _leave(guard: int | None) -> None:
    if guard is not None:
        os.close(guard)
