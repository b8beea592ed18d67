"""What have earlier deployments left, and is anybody at work on this one?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

LEFTOVERS = Topic("leftovers")


def check_leftovers(survey: Survey) -> Iterator[Finding]:
    if not survey.scope.deployments:
        return
    for needs, facts in survey.answered:
        faults: list[Finding] = []
        for here in facts.deployments:
            if here.orphaned:
                text = f"{_ids(here.orphaned)} of `{here.name}` runs without its supervisor"
                faults.append(_unsupervised(needs.name, text, here.name))
            if here.leftover:
                text = f"{_ids(here.leftover)} of `{here.name}` ended, something of it still lives"
                faults.append(_unsupervised(needs.name, text, here.name))
            if here.holder is not None and here.name == survey.plan.name:
                faults.append(
                    LEFTOVERS.warning(
                        needs.name,
                        "PD708",
                        f"`{here.name}` is being changed by {here.holder}",
                        help=f"wait until it is done; `pdctl status {here.name}` tells",
                    )
                )
        alive = [f"`{here.name}`" for here in facts.deployments if here.alive]
        yield from faults or (LEFTOVERS.ok(needs.name, f"runs {', '.join(alive)}" if alive else "none"),)


def _ids(ids: tuple[str, ...]) -> str:
    return ", ".join(f"`{each}`" for each in ids)


def _unsupervised(node: str, text: str, deployment: str) -> Finding:
    return LEFTOVERS.warning(
        node,
        "PD707",
        text,
        notes=("it holds its ports and device memory",),
        help=f"`pdctl down {deployment}` ends it; so does `pdctl up` where it replaces it",
    )
