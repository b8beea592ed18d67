"""A launch plan as one batch script for Slurm, which needs nothing of pdctl where it runs.

Its head is about the deployment: what is asked of Slurm, then a function for each process with its words.
What it does with them, `sbatch_body.sh`, is the same in every script. At the end lies the shim, which holds
each process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pdctl.executors.archive import ShimArchive
from pdctl.plan.binding import NodeAddress, parts_of
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.views.command import quoted
from pdctl.views.plan import index_ranges, plan_summary, port_list
from pdctl.views.shell_script import comment, function_name


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """What surrounds the plan in its job."""

    directives: tuple[str, ...]  # `#SBATCH --key=value`
    node_names: tuple[str, ...]  # as the inventory counts them
    are_named: bool  # the document names its nodes; else they are those of the allocation, in Slurm's order
    step_options: tuple[str, ...]  # of the srun of each process
    base_dir: str | None  # what nodes and login node share; None: where the script is submitted
    signal_lead_s: int  # how long before its time limit the job is asked to end


def sbatch_script(plan: LaunchPlan, submission: Submission, shim: ShimArchive, *, digest: str) -> str:
    """The text of the script.

    `plan` has marks for addresses (`pdctl/plan/binding.py`); `digest` is that of the plan as people see it.
    """
    numbers = {name: number for number, name in enumerate(submission.node_names)}
    head = _HEAD.format(
        directives="\n".join(submission.directives),
        name=plan.name,
        summary=plan_summary(plan),
        digest=digest[:12],
        lead_s=submission.signal_lead_s,
    )
    blocks = (
        head,
        _settings(plan, submission, shim),
        *(_process(process, numbers[process.node]) for process in plan.processes),
        _bring_up(plan),
        f"endpoint() {{\n  echo {_word(f'http://{plan.router.http}')}\n}}\n",
        _body(),
        _shim(shim),
    )
    return "\n".join(blocks)


@functools.cache
def _body() -> str:
    return Path(__file__).with_name("sbatch_body.sh").read_text(encoding="utf-8")


def _settings(plan: LaunchPlan, submission: Submission, shim: ShimArchive) -> str:
    names = " ".join(quoted(name) for name in submission.node_names) if submission.are_named else ""
    base_dir = '"$PWD"' if submission.base_dir is None else _base_dir(submission.base_dir)
    probes = [process.ready.timeout_s for process in plan.processes if process.ready is not None]
    lines = (
        f"DEPLOYMENT={quoted(plan.name)}",
        f"BASE_DIR=${{BASE_DIR:-{base_dir}}}  # nodes must share it",
        "PYTHON=${PYTHON:-python3}  # 3.8 or later, for the shim alone",
        f"NUM_NODES={len(submission.node_names)}",
        f"NODE=({names})  # names; those of the allocation where there are none",
        "ADDRESS=()  # how nodes reach each other, as NODE counts them",
        f"STEP_OPTIONS=({' '.join(quoted(option) for option in submission.step_options)})",
        f"SHIM_NAME={shim.name}",
        f"PROBE_TIMEOUT_S={max(probes, default=5.0):g}",
        f"SIGNAL_LEAD_S={submission.signal_lead_s}",
        "AFTER_GRACE_S=30  # KILL, and the ends of shim and step",
    )
    return "\n".join((*lines, ""))


def _base_dir(path: str) -> str:
    """`~` is the home directory of whoever submits, also inside quotes."""
    return f'"$HOME"{quoted(path[1:])}' if path == "~" or path.startswith("~/") else quoted(path)


def _process(process: ProcessSpec, node: int) -> str:
    """A function that sets what `start` reads."""
    facts = [port_list(process)] if process.ports else []
    if process.device_indices:
        facts.append(f"devices {index_ranges(process.device_indices)}")
    lines = [*comment(f"{process.id}: {'; '.join(facts)}"), f"{_setter(process)}() {{"]
    lines += [f"  node={node} grace_s={process.grace_s:g}"]
    if process.ready is not None:
        lines += [f"  url={_word(process.ready.url)} deadline_s={process.ready.deadline_s:g}"]
    if process.prepare:
        lines += [f"  preparation=({' '.join(_word(word) for word in process.prepare)})"]
    if process.env:
        assigned = (f"    {_word(f'{name}={value}')}" for name, value in sorted(process.env.items()))
        lines += ["  environment=(", *assigned, "  )"]
    lines += ["  argv=(", *(f"    {group}" for group in _flag_groups(process.argv)), "  )", "}", ""]
    return "\n".join(lines)


def _setter(process: ProcessSpec) -> str:
    return function_name(process.id, verb="plan")


def _flag_groups(argv: Sequence[str]) -> Iterator[str]:
    """The program, then each flag with its values, on a line."""
    group: list[str] = []
    for word in argv:
        if group and word.startswith("--") and len(word) > 2:
            yield " ".join(group)
            group = []
        group.append(_word(word))
    yield " ".join(group)


def _word(text: str) -> str:
    """One word of bash, with the addresses of nodes where their marks are."""
    return (
        "".join(
            f'"${{ADDRESS[{part.number}]}}"' if isinstance(part, NodeAddress) else quoted(part)
            for part in parts_of(text)
        )
        or "''"
    )


def _bring_up(plan: LaunchPlan) -> str:
    """Preparations, once for a node; then starts in order, each behind what it waits for."""
    prepared: dict[tuple[str, tuple[str, ...]], str] = {}
    for process in plan.processes:
        if process.prepare:
            prepared.setdefault((process.node, process.prepare), process.id)
    lines = [f"  prepare {process_id}" for process_id in prepared.values()]
    serving: set[str] = set()
    for process in plan.processes:
        lines += _awaited(plan, process.after, serving)
        lines += [f"  start {process.id}"]
    lines += _awaited(plan, [process.id for process in plan.processes], serving)
    return "\n".join(["bring_up() {", *lines, "}", ""])


def _awaited(plan: LaunchPlan, process_ids: Sequence[str], serving: set[str]) -> Iterator[str]:
    """One line for those which aren't known to serve; running is enough for who has nothing to ask."""
    probed = {process.id for process in plan.processes if process.ready is not None}
    waiting = [each for each in process_ids if each in probed and each not in serving]
    serving.update(waiting)
    if waiting:
        yield f"  await_ready {' '.join(waiting)}"


def _shim(shim: ShimArchive) -> str:
    return _SHIM.format(content=shim.content.decode())


_HEAD = """\
#!/bin/bash
{directives}
#
# {name}: {summary}; plan {digest}
#
#   sbatch FILE                   serve; the job's output says where, and {name}-JOB.0/endpoint
#   scancel --batch -s TERM JOB   end: first the router, then the engines, each within its grace
#
# Written by `pdctl render --as sbatch`; needs Slurm and Python on the nodes, and nothing of pdctl. {lead_s} s
# before its time limit, the job ends in the same way. Options of sbatch win over those above.
#
# What single quotes hold is text, whatever it looks like; commas are part of words; and what one function sets
# of a process, another one uses:
# shellcheck disable=SC2016,SC2034,SC2054
set -euo pipefail
"""

_SHIM = """\
# The shim, a program of its own: it starts a process, watches it, records its end, ends all that came of it.
write_shim() {{
  cat << 'END OF THE SHIM'
{content}END OF THE SHIM
}}

main
"""
