"""The verbs `list` and `forget`: which deployments have run directories here; removing what has ended."""

from __future__ import annotations

import os
import shutil

from .family import Family, living_below
from .proc import Table, boot_id
from .record import LOCK, RequestError, check_name, lock_file, process_ids


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
    return {"kept": sorted(kept)}


def remove_if_unused(root: str, deployment: str) -> None:
    """Remove the empty deployment directory; with the last one, packed shims and the root itself."""
    try:
        os.rmdir(os.path.join(root, deployment))
        names = os.listdir(root)
        if all(name.startswith("shim-") and name.endswith(".pyz") for name in names):
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
