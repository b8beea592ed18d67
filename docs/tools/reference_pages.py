"""Make the pages of `docs/reference/` from what pdctl itself reads: the schema and the explanations.

python docs/tools/reference_pages.py            write them
python docs/tools/reference_pages.py --check    end with 1 where one is out of date
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pdctl import explain
from pdctl.resources import resource_path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "docs" / "reference"
MADE_BY = "<!-- Made by docs/tools/reference_pages.py: edit what it reads, and run it again. -->"

FAMILIES: Mapping[str, str] = {
    "PD1": "The document",
    "PD2": "Shapes, flags and settings",
    "PD3": "What prefill and decode must agree on",
    "PD4": "Nodes, ports and devices",
    "PD5": "Executors and nodes",
    "PD6": "Acts: up, down, restart",
    "PD7": "Doctor",
}
TYPES: Mapping[str, str] = {
    "string": "text",
    "integer": "whole number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "mapping",
    "null": "null",
}

Schema = Mapping[str, Any]


def pages() -> dict[str, str]:
    """Name to text, for every page."""
    return {"topology.md": topology_page(), "diagnostics.md": diagnostics_page()}


def topology_page() -> str:
    schema = json.loads(resource_path("schemas", "topology.schema.json").read_text(encoding="utf-8"))
    lines = ["# Topology", "", MADE_BY, "", schema["description"], ""]
    lines += [
        "`pdctl schema topology` prints the schema that editors read; `pdctl validate` checks a file.",
        "",
    ]
    for path, part, is_required in keys(schema, schema, ()):
        lines += section(path, part, is_required)
    return "\n".join(lines).rstrip() + "\n"


def keys(
    schema: Schema, root: Schema, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Schema, bool]]:
    """Every key under a mapping, with its own keys behind it; `[]` stands for each item of a list."""
    required = schema.get("required", ())
    for name, stated in schema.get("properties", {}).items():
        part = resolved(stated, root)
        yield (*path, name), part, name in required
        yield from keys(part, root, (*path, name))
        for variant in (*part.get("oneOf", ()), *part.get("anyOf", ())):
            yield from keys(resolved(variant, root), root, (*path, name))
        items = part.get("items")
        if items is not None:
            yield from keys(resolved(items, root), root, (*path, f"{name}[]"))


def resolved(schema: Schema, root: Schema) -> Schema:
    """With its `$ref` followed; what stands beside the reference wins."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    target: Any = root
    for step in reference.removeprefix("#/").split("/"):
        target = target[step]
    return {**target, **{key: value for key, value in schema.items() if key != "$ref"}}


def section(path: tuple[str, ...], part: Schema, is_required: bool) -> list[str]:
    heading = "#" * min(len(path) + 1, 4)
    lines = [f"{heading} `{'.'.join(path)}`", "", part.get("description", ""), ""]
    lines += [f"- {fact}" for fact in facts(part, is_required)]
    return [*lines, ""]


def facts(part: Schema, is_required: bool) -> Iterator[str]:
    kinds = type_names(part)
    if kinds:
        yield f"Type: {kinds}" + (", required" if is_required else "")
    if "enum" in part:
        yield "One of: " + ", ".join(f"`{value}`" for value in part["enum"])
    elif "x-must-be" in part:
        yield f"Must be: {part['x-must-be']}"
    limits = [
        f"{word} {part[key]:,}"
        for key, word in (
            ("minimum", "at least"),
            ("exclusiveMinimum", "more than"),
            ("maximum", "at most"),
        )
        if key in part
    ]
    if limits:
        yield "Range: " + ", ".join(limits)
    if "default" in part:
        yield f"Default: `{shown(part['default'])}`"
    if part.get("examples") and part.get("type") != "object":
        yield "For example: " + ", ".join(f"`{shown(example)}`" for example in part["examples"])


def type_names(part: Schema) -> str:
    stated = part.get(
        "type", [variant.get("type") for variant in (*part.get("oneOf", ()), *part.get("anyOf", ()))]
    )
    kinds = [stated] if isinstance(stated, str) else [kind for kind in stated if isinstance(kind, str)]
    return " or ".join(dict.fromkeys(TYPES[kind] for kind in kinds))


def shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def diagnostics_page() -> str:
    lines = ["# Diagnostics", "", MADE_BY, ""]
    lines += [
        "Every fault that pdctl reports has a code, and each code a page: what it is, why it hurts and",
        "how to fix it. `pdctl explain PD302` shows the same page in a terminal.",
        "",
    ]
    for prefix, title in FAMILIES.items():
        codes = [code for code in explain.codes() if code.startswith(prefix)]
        if codes:
            lines += [f"## {title}", "", "| code | about |", "|---|---|"]
            lines += [
                f"| [{code}](../../pdctl/explanations/{code}.md) | {explain.title(code)} |" for code in codes
            ]
            lines += [""]
    return "\n".join(lines).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    made = pages()
    if arguments == ["--check"]:
        stale = [name for name, text in made.items() if read(FOLDER / name) != text]
        sys.stdout.writelines(f"docs/reference/{name} is out of date\n" for name in stale)
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
    return 0


def read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
