"""The verbs `list`, `forget`, `tidy`, `keep`, `kept`: what is here of deployments but their processes."""

from __future__ import annotations

import os

from .family import Family, living_below
from .history import HISTORY
from .proc import Table, boot_id
from .record import (
    LOCK,
    MAX_FILE_BYTES,
    PLAN,
    REMOVING,
    RequestError,
    is_elsewhere,
    is_name,
    lock_file,
    make_private_dirs,
    process_ids,
    read_json,
    remove_tree,
    write_json,
)

RECORD = "operator.json"  # who works on the deployment


def list_deployments(root: str) -> list[str]:
    """Names of deployments with a process directory, with a living process whose directory was removed, or
    with an end that is not finished on other nodes.
    """
    named = [name for name in process_ids(root) if is_name(name)]
    found = {name for name in named if process_ids(os.path.join(root, name)) or kept(root, name)["pending"]}
    found |= {name for name in living_below(root, Table()) if is_name(name)}
    return sorted(found)


def forget(root: str, deployment: str, node: object, keeps_plan: bool) -> dict:
    """Remove every ended process's directory with its output. Living processes keep theirs and are named.

    With the last one goes what else is kept of the deployment, unless other nodes still need it.
    """
    deployment_dir = os.path.join(root, deployment)
    table, boot = Table(), boot_id()
    kept = living_below(deployment_dir, table)
    for process_id in process_ids(deployment_dir):
        process_dir = os.path.join(deployment_dir, process_id)
        if is_elsewhere(process_dir, node):
            continue
        try:
            lock = lock_file(os.path.join(process_dir, LOCK))
        except FileNotFoundError:  # another call was faster
            continue
        if lock is None or Family(process_dir, table, boot).members:
            kept.add(process_id)
        else:
            _remove_tree(process_dir)
        if lock is not None:
            os.close(lock)
    _remove_what_a_killed_call_left(deployment_dir)
    if not kept and not keeps_plan and not process_ids(deployment_dir):
        for name in (PLAN, HISTORY):
            _remove(os.path.join(deployment_dir, name))
        if not os.path.exists(os.path.join(deployment_dir, RECORD)):  # else the last `unlock` does it
            remove_if_unused(root, deployment)
    return {"kept": sorted(kept)}


def keep(root: str, deployment: str, request: dict) -> dict:
    """Keep the plan that is about to be applied, for operators who have no record of it.

    `generation` grows with each plan: of several nodes the one with the highest has the plan in force.
    `pending` tells the nodes on which an end is not finished.
    """
    content, generation, pending = (request.get(key) for key in ("content", "generation", "pending"))
    if not isinstance(content, str) or len(content) > MAX_FILE_BYTES // 2:
        raise RequestError("`content` is not a text of at most %d characters" % (MAX_FILE_BYTES // 2))
    if not isinstance(generation, int) or not isinstance(pending, list):
        raise RequestError("`generation` is not a number, or `pending` not a list")
    deployment_dir = os.path.join(root, deployment)
    make_private_dirs(deployment_dir)
    record = {"generation": generation, "pending": pending, "content": content}
    write_json(os.path.join(deployment_dir, PLAN), record)
    return {}


def kept(root: str, deployment: str) -> dict:
    """The plan that was kept last; null when there is none that can be read."""
    found = read_json(os.path.join(root, deployment, PLAN))
    generation, pending, content = (found.get(key) for key in ("generation", "pending", "content"))
    return {
        "generation": generation if isinstance(generation, int) else 0,
        "pending": pending if isinstance(pending, list) else [],
        "content": content if isinstance(content, str) else None,
    }


def _remove_tree(process_dir: str) -> None:
    """Gone at once for all who look, so that no node takes what is left of it for its own."""
    parent, name = os.path.split(process_dir)
    removing = os.path.join(parent, "%s%s" % (REMOVING, name))
    remove_tree(removing)  # of a call that was killed
    os.rename(process_dir, removing)
    remove_tree(removing)  # another call may be at it, too


def _remove_what_a_killed_call_left(deployment_dir: str) -> None:
    try:
        names = os.listdir(deployment_dir)
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        if name.startswith(REMOVING):
            remove_tree(os.path.join(deployment_dir, name))


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def tidy(root: str) -> dict:
    """Remove what those have left who only looked, or were refused: history, packed shims, the root itself.

    Nothing of a deployment that is here, or that somebody works on.
    """
    for deployment in process_ids(root):
        place = os.path.join(root, deployment)
        if not process_ids(place) and not any(os.path.exists(os.path.join(place, n)) for n in (PLAN, RECORD)):
            _remove(os.path.join(place, HISTORY))
            remove_if_unused(root, deployment)
    _remove_root_if_unused(root)
    return {}


def remove_if_unused(root: str, deployment: str) -> None:
    """Remove the empty deployment directory; with the last one, packed shims and the root itself."""
    try:
        os.rmdir(os.path.join(root, deployment))
    except FileNotFoundError:  # this node was only looked at
        pass
    except OSError:  # something is in use
        return
    _remove_root_if_unused(root)


def _remove_root_if_unused(root: str) -> None:
    try:
        names = os.listdir(root)
        # A half-written one may be on its way: whoever sends it begins anew. Or its sender was cut off.
        if all(name.startswith("shim-") for name in names):
            for name in names:
                os.unlink(os.path.join(root, name))
            os.rmdir(root)
            if os.path.basename(os.path.dirname(root)) == "pdctl":  # made by us, unlike what is above it
                os.rmdir(os.path.dirname(root))
    except OSError:  # something is in use, or another call was faster
        pass
