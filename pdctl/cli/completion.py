"""What the shell offers after TAB. Reads files only: completion must never wait for a node."""

from __future__ import annotations

import os


def complete_deployments(incomplete: str) -> list[str]:
    from pdctl.state.paths import deployments_dir, state_dir

    folder = deployments_dir(state_dir(os.environ))
    names = (each.name for each in folder.iterdir() if each.is_dir()) if folder.is_dir() else ()
    return sorted(name for name in names if name.startswith(incomplete))


def complete_topologies(incomplete: str) -> list[str]:
    """YAML files and folders at the place that is being typed, spelled on as it was begun."""
    from pathlib import Path

    before, slash, start = incomplete.rpartition("/")
    folder = Path(f"{before}{slash}" or ".").expanduser()
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.name.startswith(start))
    return sorted(
        f"{before}{slash}{each.name}{'/' if each.is_dir() else ''}"
        for each in found
        if _may_lead_to_yaml(each.name, is_folder=each.is_dir())
    )


def complete_kinds(incomplete: str) -> list[str]:
    from pdctl.cli.catalog import Kind

    return [kind.value for kind in Kind if kind.value.startswith(incomplete)]


def complete_codes(incomplete: str) -> list[str]:
    from pdctl.explain import codes

    return [code for code in codes() if code.startswith(incomplete.upper())]


def _may_lead_to_yaml(name: str, *, is_folder: bool) -> bool:
    return not name.startswith(".") and (is_folder or name.endswith((".yaml", ".yml")))
