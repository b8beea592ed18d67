"""What the shell offers after TAB. Reads files only: completion must never wait for a node."""

from __future__ import annotations

import os


def complete_deployments(incomplete: str) -> list[str]:
    from pdctl.state.paths import deployments_dir, state_dir

    folder = deployments_dir(state_dir(os.environ))
    names = (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    return sorted(name for name in names if name.startswith(incomplete))


def complete_topologies(incomplete: str) -> list[str]:
    """YAML files and folders at the place that is being typed."""
    from pathlib import Path

    typed = Path(incomplete)
    folder, start = (typed, "") if incomplete.endswith("/") else (typed.parent, typed.name)
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.name.startswith(start))
    return sorted(
        f"{each}/" if each.is_dir() else str(each) for each in found if _may_lead_to_yaml(each.name)
    )


def complete_kinds(incomplete: str) -> list[str]:
    from pdctl.cli.catalog import Kind

    return [kind.value for kind in Kind if kind.value.startswith(incomplete)]


def complete_codes(incomplete: str) -> list[str]:
    from pdctl.resources import resource_path

    pages = resource_path("explanations").glob("*.md")
    return sorted(page.stem for page in pages if page.stem.startswith(incomplete.upper()))


def _may_lead_to_yaml(name: str) -> bool:
    return not name.startswith(".") and ("." not in name or name.endswith((".yaml", ".yml")))
