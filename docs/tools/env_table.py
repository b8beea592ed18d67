"""Make `schemas/sglang/env.json`: each variable that releases of SGLang mention, with its first and last one.

    python docs/tools/env_table.py sglang-0.5.9-py3-none-any.whl … > schemas/sglang/env.json

Reads the wheels as archives and imports nothing. A name counts where it stands anywhere in Python code: more
than what is read, so that no variable that works is called unknown.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

_NAME = re.compile(r"\bSGLANG_[A-Z0-9_]*[A-Z0-9]\b")
_REGISTRY = "sglang/srt/environ.py"
_KINDS = {"EnvBool": "bool", "EnvInt": "int", "EnvFloat": "float"}


def main(wheels: list[str]) -> None:
    releases = sorted((_version(wheel), wheel) for wheel in wheels)
    seen: dict[str, list[str]] = {}
    kinds: dict[str, str | None] = {}  # as the newest release that declares it has it
    for version, wheel in releases:
        with zipfile.ZipFile(wheel) as archive:
            sources = [name for name in archive.namelist() if name.endswith(".py")]
            mentioned = {
                name
                for source in sources
                for name in _NAME.findall(archive.read(source).decode("utf-8", "replace"))
            }
            if _REGISTRY in sources:
                kinds |= dict(_declared(archive.read(_REGISTRY).decode("utf-8")))
        for name in mentioned:
            seen.setdefault(name, [_text(version)] * 2)[1] = _text(version)
    lines = [
        f"    {json.dumps(name)}: {json.dumps([*seen[name], *([kinds[name]] if kinds.get(name) else [])])}"
        for name in sorted(seen)
    ]
    versions = json.dumps([_text(version) for version, _ in releases])
    body = ",\n".join(lines)
    sys.stdout.write(f'{{\n  "versions": {versions},\n  "names": {{\n{body}\n  }}\n}}\n')


def _declared(source: str) -> Iterator[tuple[str, str | None]]:
    """`SGLANG_X = EnvBool(…)` of the registry, as name and kind; None for text, which takes every value."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            made_by = node.value.func
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(made_by, ast.Name):
                    yield target.id, _KINDS.get(made_by.id)


def _version(wheel: str) -> tuple[tuple[int, ...], int]:
    text = Path(wheel).name.split("-")[1]
    release, _, post = text.partition(".post")
    return tuple(int(part) for part in release.split(".")), int(post or 0)


def _text(version: tuple[tuple[int, ...], int]) -> str:
    release, post = version
    return ".".join(map(str, release)) + (f".post{post}" if post else "")


if __name__ == "__main__":
    main(sys.argv[1:])
