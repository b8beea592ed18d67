"""Which deployment a verb is about, and which of its instances and processes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from pdctl.cli.planning import looks_like_file, refuse_shipped_name
from pdctl.cli.usage import UsageFault
from pdctl.diagnostics import DiagnosticError
from pdctl.lifecycle.access import deployments, introduce
from pdctl.lifecycle.planning import TopologySource, plan_file

_ID = re.compile(r"(prefill|decode|router)-\d+(\.\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    name: str
    ids: tuple[str, ...]  # of instances or processes


def target_of(name: str | None, words: Sequence[str]) -> Target:
    """`words` are ids, each maybe qualified as `NAME/decode-0`, or the deployment's bare name.

    All must mean one deployment.
    """
    bare = {word for word in words if not _ID.fullmatch(word.rpartition("/")[2])} & set(deployments())
    names = bare | {word.partition("/")[0] for word in words if "/" in word}
    if name is not None:
        names.add(deployment_of(name))
    if len(names) > 1:
        raise UsageFault(f"these ids are of {_and(sorted(names))}", hint="one deployment at a time")
    return Target(
        name=names.pop() if names else only_deployment("`--name NAME`"),
        ids=tuple(word.rpartition("/")[2] for word in words if word not in bare),
    )


def deployment_of(target: str | None) -> str:
    """The deployment that a name or the path of a topology means."""
    if target is None:
        return only_deployment("its name")
    if not looks_like_file(target):
        return target
    refuse_shipped_name(target)
    plan = plan_file(TopologySource(path=target, sets=(), profile=None)).plan
    if not introduce(plan):
        raise DiagnosticError.one(
            "PD608",
            f"no deployment `{plan.name}` is known: nothing of it is on its nodes, or on record here",
            help=f"`pdctl up {shlex.quote(target)}` starts it",
        )
    return plan.name


def only_deployment(how: str) -> str:
    """The one that there is; `how` tells what to say when there are more."""
    names = deployments()
    if len(names) == 1:
        return names[0]
    if not names:
        raise UsageFault("no deployment is on record", hint="`pdctl up FILE` starts one")
    raise UsageFault(f"there is more than one deployment: {_and(names)}", hint=f"say which by {how}")


def _and(words: Sequence[str]) -> str:
    return f"{', '.join(f'`{word}`' for word in words[:-1])} and `{words[-1]}`"
