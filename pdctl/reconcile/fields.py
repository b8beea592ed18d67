"""Differences between two command lines, flag by flag, for people who ask why something restarts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pdctl.reconcile.model import FieldChange


def field_changes(
    *,
    argv_before: Sequence[str],
    argv_after: Sequence[str],
    env_before: Mapping[str, str],
    env_after: Mapping[str, str],
) -> tuple[FieldChange, ...]:
    """Flags in the new order, then removed ones, then variables."""
    flags = _differences(_flags(argv_before), _flags(argv_after))
    variables = _differences(env_before, env_after)
    return (*flags, *variables)


def _flags(argv: Sequence[str]) -> dict[str, str]:
    """`python -m engine --port 1` as `{"command": "python -m engine", "--port": "1"}`.

    A flag without a value has an empty one; a repeated flag keeps all its values, joined.
    """
    flags: dict[str, str] = {}
    name = "command"
    values: list[str] = []
    for word in (*argv, "--"):
        if not word.startswith("--"):
            values.append(word)
            continue
        text = " ".join(values)
        flags[name] = f"{flags[name]} {text}" if name in flags else text
        name, _, value = word.partition("=")
        values = [value] if value else []
    return flags


def _differences(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[FieldChange, ...]:
    names = (*after, *(name for name in before if name not in after))
    return tuple(
        FieldChange(name=name, before=before.get(name), after=after.get(name))
        for name in names
        if before.get(name) != after.get(name)
    )
