"""A launch plan as one batch script for Slurm, which needs nothing of pdctl where it runs.

Its head is about the deployment: what is asked of Slurm, then a function for each process with its words.
What it does with them, `sbatch_body.sh`, is the same in every script. At the end lies the shim, which holds
each process.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

from pdctl.executors.archive import ShimArchive
from pdctl.executors.slurm_job.batch_job import RUN_DIR, BatchJob
from pdctl.plan.binding import NodeAddress, parts_of
from pdctl.plan.model import LaunchPlan, ProcessSpec
from pdctl.views.command import quoted
from pdctl.views.plan import index_ranges, plan_summary, port_list
from pdctl.views.shell_script import comment, function_name


def sbatch_script(plan: LaunchPlan, job: BatchJob, shim: ShimArchive, *, digest: str) -> str:
    """The text of the script.

    `plan` has marks for addresses (`pdctl/plan/binding.py`); `digest` is that of the plan as people see it.
    """
    numbers = {name: number for number, name in enumerate(job.node_names)}
    head = _HEAD.format(
        directives="\n".join(job.directives),
        name=plan.name,
        summary=plan_summary(plan),
        digest=digest[:12],
        lead_s=job.signal_lead_s,
    )
    blocks = (
        head,
        _settings(plan, job, shim),
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


def _settings(plan: LaunchPlan, job: BatchJob, shim: ShimArchive) -> str:
    names = " ".join(quoted(name) for name in job.node_names) if job.are_named else ""
    base_dir = '"$PWD"' if job.base_dir is None else _path(job.base_dir)
    run_root = '"$RUN_DIR/run"' if job.node_dir is None else f'{_path(job.node_dir)}/"${{RUN_DIR##*/}}"'
    probes = [process.ready.timeout_s for process in plan.processes if process.ready is not None]
    lines = (
        f"DEPLOYMENT={quoted(plan.name)}",
        f"BASE_DIR=${{BASE_DIR:-{base_dir}}}  # nodes must share it",
        "RUN_DIR=$BASE_DIR/$DEPLOYMENT-${SLURM_JOB_ID:?submit this with sbatch}.${SLURM_RESTART_COUNT:-0}",
        f"RUN_ROOT={run_root}  # of each process's output and records",
        f"PYTHON={quoted(job.python)}  # 3.8 or later, for the shim alone",
        f"NUM_NODES={len(job.node_names)}",
        f"NODE=({names})  # names; those of the allocation where there are none",
        "ADDRESS=()  # how nodes reach each other, as NODE counts them",
        f"STEP_OPTIONS=({' '.join(map(_in_run_dir, job.step_options))})",
        f"LAUNCHER=({' '.join(map(_in_run_dir, job.launcher))})  # before the command of each step",
        f"SHIM=$RUN_DIR/{shim.name}",
        f"PROBE_TIMEOUT_S={max(probes, default=5.0):g}",
        f"SIGNAL_LEAD_S={job.signal_lead_s}",
        "AFTER_GRACE_S=30  # KILL, and the ends of shim and step",
    )
    return "\n".join((*lines, ""))


def _path(path: str) -> str:
    """`~` is the home directory of whoever submits, also inside quotes."""
    return f'"$HOME"{quoted(path[1:])}' if path.startswith("~/") else quoted(path)


def _in_run_dir(word: str) -> str:
    return '"$RUN_DIR"'.join(quoted(piece) if piece else "" for piece in word.split(RUN_DIR))


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
    prepared: dict[tuple[object, ...], str] = {}
    for process in plan.processes:
        if process.prepare:
            key = (process.node, process.prepare, tuple(sorted(process.env.items())))
            prepared.setdefault(key, process.id)
    lines = [f"  prepare {' '.join(prepared.values())}"] if prepared else []
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
# What single quotes hold is text, whatever it looks like; commas are part of words; what one function sets
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
