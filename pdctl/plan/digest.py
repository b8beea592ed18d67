"""sha256 of values, over their canonical JSON: equal values give equal digests on every machine."""

from __future__ import annotations

import hashlib
import json

from pdctl.plan.model import ProcessSpec

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]


def digest(value: Json) -> str:
    canonical = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def process_digest(process: ProcessSpec) -> str:
    """What forces a restart: place, devices, argv, environment. Deadlines and start order do not."""
    return digest(
        {
            "node": process.node,
            "device_indices": list(process.device_indices),
            "argv": list(process.argv),
            "env": dict(process.env),
        }
    )
