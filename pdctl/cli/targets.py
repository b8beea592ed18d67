"""Which deployment a verb is about, and which of its instances and processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import typer

from pdctl import lifecycle
from pdctl.cli.planning import looks_like_file, refuse_shipped_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    ids: tuple[str, ...]  # of instances or processes


def target_of(name: str | None, words: Sequence[str]) -> Target:
    """`words` are ids, each maybe qualified as `NAME/decode-0`; all must mean one deployment."""
    names = {word.partition("/")[0] for word in words if "/" in word}
    if name is not None:
        names.add(name)
    if len(names) > 1:
        raise typer.BadParameter(f"one deployment at a time, not {_and(sorted(names))}", param_hint="ID")
    return Target(
        name=names.pop() if names else only_deployment("--name"),
        ids=tuple(word.rpartition("/")[2] for word in words),
    )


def deployment_of(target: str | None) -> str:
    """The deployment that a name or the path of a topology means."""
    if target is None:
        return only_deployment("NAME")
    if not looks_like_file(target):
        return target
    refuse_shipped_name(target)
    source = lifecycle.TopologySource(path=target, sets=(), profile=None)
    return lifecycle.plan_file(source).plan.name


def only_deployment(parameter: str) -> str:
    names = lifecycle.deployments()
    if len(names) == 1:
        return names[0]
    if not names:
        raise typer.BadParameter(
            "no deployment is on record; `pdctl up FILE` starts one", param_hint=parameter
        )
    raise typer.BadParameter(f"say which deployment: {_and(names)} are on record", param_hint=parameter)


def _and(words: Sequence[str]) -> str:
    return f"{', '.join(f'`{word}`' for word in words[:-1])} and `{words[-1]}`"
