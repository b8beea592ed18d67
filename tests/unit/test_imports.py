"""The direction of imports, and the walls around libraries, as docs/architecture.md draws them."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Low to high: a module may import from its own layer and from those before it.
LAYERS = (
    ("diagnostics", "alike", "resources", "clock", "fields", "hostlist"),
    ("models", "topology", "inventory"),
    ("plan", "flags", "flagtable", "inspection"),
    ("state", "events", "status"),
    ("reconcile",),
    ("executors",),
    ("program", "plugins"),
    ("engines", "routers", "rules", "explain", "explanations", "rehearsal"),
    ("compiler",),
    ("health", "metrics", "apply", "doctor"),
    ("lifecycle",),
    ("views",),
    ("cli",),
    ("__main__",),
)

# Where a library may be imported; everything else must do without it.
WALLS = {
    "rich": ("pdctl/views",),
    "typer": ("pdctl/cli",),
    "click": ("pdctl/cli",),
    "yaml": ("pdctl/topology",),
    "jsonschema": ("pdctl/topology",),
    "torch": ("runtime/kv", "runtime/transfer", "runtime/engine"),
    "starlette": ("runtime/engine/server", "runtime/bootstrap"),
    "transformers": (),
    "fabric": ("pdctl/executors/fabric_transport",),
    "paramiko": ("pdctl/executors/fabric_transport",),
    "cryptography": ("pdctl/executors/fabric_transport",),
}


def modules(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@functools.cache
def imported(path: Path, *, at_run_time_only: bool = False) -> tuple[str, ...]:
    """Full names of what a file imports by absolute name; relative imports stay inside their package."""
    return tuple(_imported(ast.parse(path.read_text(encoding="utf-8")), at_run_time_only))


def _imported(tree: ast.Module, at_run_time_only: bool) -> Iterator[str]:
    typing_only = {
        id(node)
        for guard in ast.walk(tree)
        if isinstance(guard, ast.If) and ast.unparse(guard.test) == "TYPE_CHECKING"
        for node in ast.walk(guard)
    }
    for node in ast.walk(tree):
        if at_run_time_only and id(node) in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer_of(module: str) -> int | None:
    """Index of the layer of `pdctl.<part>…`, None for what is outside pdctl."""
    parts = module.split(".")
    if parts[0] != "pdctl" or len(parts) < 2:
        return None
    return next((index for index, names in enumerate(LAYERS) if parts[1] in names), None)


def test_every_part_of_pdctl_has_a_layer():
    parts = {path.relative_to(ROOT / "pdctl").parts[0].removesuffix(".py") for path in modules("pdctl")}
    assert parts - {name for names in LAYERS for name in names} == {"__init__"}


@pytest.mark.parametrize("path", modules("pdctl"), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_imports_only_from_its_own_layer_and_below(path: Path):
    own = layer_of(".".join(path.relative_to(ROOT).with_suffix("").parts))
    if own is None:
        return  # the package itself
    above = {
        name
        for name in imported(path, at_run_time_only=True)
        if (layer := layer_of(name)) is not None and layer > own
    }
    assert above == set()


@pytest.mark.parametrize(("package", "other"), [("pdctl", "runtime"), ("runtime", "pdctl")])
def test_control_side_and_node_side_never_import_each_other(package: str, other: str):
    guilty = [
        str(path.relative_to(ROOT))
        for path in modules(package)
        if any(name.split(".")[0] == other for name in imported(path))
    ]
    assert guilty == []


@pytest.mark.parametrize("library", WALLS)
def test_a_library_stays_behind_its_wall(library: str):
    allowed = WALLS[library]
    guilty = [
        str(path.relative_to(ROOT))
        for path in (*modules("pdctl"), *modules("runtime"))
        if any(name.split(".")[0] == library for name in imported(path))
        and not any(str(path.relative_to(ROOT)).startswith(f"{place}/") for place in allowed)
    ]
    assert guilty == []


def test_the_shim_needs_the_standard_library_alone():
    foreign = {
        name.split(".")[0]
        for path in modules("runtime/shim")
        for name in imported(path)
        if name.split(".")[0] not in sys.stdlib_module_names
    }
    assert foreign == set()


def test_nothing_reads_pickles():
    guilty = [
        str(path.relative_to(ROOT))
        for package in ("pdctl", "runtime")
        for path in modules(package)
        if any(name.split(".")[0] in ("pickle", "marshal", "shelve") for name in imported(path))
    ]
    assert guilty == []
