"""Variables that releases of SGLang mention: `schemas/sglang/env.json`, by `docs/tools/env_table.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from pdctl.flagtable.versions import version_key
from pdctl.resources import resource_path

# SGLang copies SGL_X to SGLANG_X at import, over what is there (srt/environ.py, _handle_deprecated_envs).
PREFIX, OLD_PREFIX = "SGLANG_", "SGL_"


def modern_name(name: str) -> str:
    return PREFIX + name.removeprefix(OLD_PREFIX) if name.startswith(OLD_PREFIX) else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """The first and the last sampled release that mentions it, and its kind: bool, int or float."""

    first: str | None  # None: the oldest sample has it, and older releases may
    last: str
    kind: str | None = None

    def is_in(self, version: str) -> bool:
        """Whether that release is the first one or a later one."""
        mine, first = version_key(version), None if self.first is None else version_key(self.first)
        return mine is None or first is None or mine >= first


@cache
def variables() -> Mapping[str, Variable]:
    """By name; read when a document sets such a variable, and once."""
    told = json.loads(resource_path("schemas", "sglang", "env.json").read_text(encoding="utf-8"))
    oldest = told["versions"][0]
    return {
        name: Variable(first=None if first == oldest else first, last=last, kind=kind[0] if kind else None)
        for name, (first, last, *kind) in told["names"].items()
    }
