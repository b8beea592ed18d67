"""What deployments have left or still run on a node, and who works on them."""

from __future__ import annotations

from .keep import list_deployments
from .oplock import holder
from .status import status

ALIVE = ("starting", "running", "orphaned")


def deployments(root: str, node: object) -> list[dict]:
    """`{"name", "alive", "orphaned", "leftover", "holder"}` of each: ids of processes, the lock's owner.

    `leftover` are those that ended and left something alive.
    """
    return [_deployment(root, name, node) for name in list_deployments(root)]


def _deployment(root: str, name: str, node: object) -> dict:
    entries = status(root, name, node)
    return {
        "name": name,
        "alive": [each["process_id"] for each in entries if each["state"] in ALIVE],
        "orphaned": [each["process_id"] for each in entries if each["state"] == "orphaned"],
        "leftover": [
            each["process_id"] for each in entries if each["state"] not in ALIVE and each["num_alive"]
        ],
        "holder": holder(root, name)["holder"],
    }
