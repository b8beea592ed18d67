"""The verbs `list`, `forget`, `keep` and `kept`: what is here of deployments, besides their processes."""

from __future__ import annotations

import os
import shutil

from .family import Family, living_below
from .proc import Table, boot_id
from .record import (
    LOCK,
    MAX_FILE_BYTES,
    PLAN,
    RequestError,
    check_name,
    lock_file,
    make_private_dirs,
    process_ids,
    write_text,
)


def list_deployments(root: str) -> list[str]:
    """Names of deployments with a process directory, or with a living process whose directory was removed."""
    found = {name for name in process_ids(root) if _is_name(name) and process_ids(os.path.join(root, name))}
    found |= {name for name in living_below(root, Table()) if _is_name(name)}
    return sorted(found)


def forget(root: str, deployment: str) -> dict:
    """Remove every ended process's directory with its output. Living processes keep theirs and are named."""
    deployment_dir = os.path.join(root, deployment)
    table, boot = Table(), boot_id()
    kept = living_below(deployment_dir, table)
    for process_id in process_ids(deployment_dir):
        process_dir = os.path.join(deployment_dir, process_id)
        lock = lock_file(os.path.join(process_dir, LOCK))
        if lock is None or Family(process_dir, table, boot).members:
            kept.add(process_id)
        else:
            shutil.rmtree(process_dir)
        if lock is not None:
            os.close(lock)
    if not kept:
        _remove_plan(deployment_dir)
    return {"kept": sorted(kept)}


def keep(root: str, deployment: str, content: object) -> dict:
    """Keep the plan that is about to be applied, for operators who have no record of it."""
    if not isinstance(content, str) or len(content) > MAX_FILE_BYTES:
        raise RequestError("`content` is not a text of at most %d characters" % MAX_FILE_BYTES)
    deployment_dir = os.path.join(root, deployment)
    make_private_dirs(deployment_dir)
    write_text(os.path.join(deployment_dir, PLAN), content)
    return {}


def kept(root: str, deployment: str) -> dict:
    """The plan that was kept last; null when there is none that can be read."""
    try:
        with open(os.path.join(root, deployment, PLAN), encoding="utf-8") as file:
            return {"content": file.read(MAX_FILE_BYTES)}
    except (OSError, UnicodeDecodeError):
        return {"content": None}


def _remove_plan(deployment_dir: str) -> None:
    try:
        os.unlink(os.path.join(deployment_dir, PLAN))
    except FileNotFoundError:
        pass


def remove_if_unused(root: str, deployment: str) -> None:
    """Remove the empty deployment directory; with the last one, packed shims and the root itself."""
    try:
        os.rmdir(os.path.join(root, deployment))
        names = os.listdir(root)
        if all(name.startswith("shim-") and name.endswith(".py") for name in names):
            for name in names:
                os.unlink(os.path.join(root, name))
            os.rmdir(root)
    except OSError:  # something is in use, or another call was faster
        pass


def _is_name(name: str) -> bool:
    try:
        check_name(name)
    except RequestError:
        return False
    return True
