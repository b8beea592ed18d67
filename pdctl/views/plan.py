"""The launch plan for people: what runs where, with ports, devices and the very commands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.plan.model import LaunchPlan, PlanNode, ProcessSpec
from pdctl.views.canvas import Canvas, Style
from pdctl.views.command import command_lines
from pdctl.views.quantities import counted
from pdctl.views.text import wrap


def plan_lines(plan: LaunchPlan, canvas: Canvas) -> Iterator[str]:
    """A block per node that has processes, a block per process in it, then one line that sums up."""
    for node in plan.nodes:
        processes = [each for each in plan.processes if each.node == node.name]
        if processes:
            yield _node_line(node, canvas)
            yield from _preparations(processes, canvas)
            for process in processes:
                yield from _process_block(process, canvas)
            yield ""
    yield f"{plan.name}: {plan_summary(plan)}; plan {plan.digest[:12]}"


def process_lines(process: ProcessSpec, canvas: Canvas) -> Iterator[str]:
    """One process as a command to copy, and nothing else."""
    yield from command_lines(process.argv, process.env, canvas)


def plan_summary(plan: LaunchPlan) -> str:
    """`3 processes of 3 instances on 1 node`."""
    instances = counted(len(plan.instances), "instance")
    processes = counted(len(plan.processes), "process", "processes")
    nodes = counted(len({each.node for each in plan.processes}), "node")
    return f"{processes} of {instances} on {nodes}"


def port_list(process: ProcessSpec) -> str:
    """`http 30000, bootstrap 8998`."""
    return ", ".join(f"{claim.name} {claim.port}" for claim in process.ports)


def index_ranges(indices: Sequence[int]) -> str:
    """`0-3,6` for 0, 1, 2, 3, 6."""
    runs: list[list[int]] = []
    for index in sorted(indices):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _node_line(node: PlanNode, canvas: Canvas) -> str:
    address = "" if node.address == node.name else f" ({node.address})"
    return f"{canvas.paint('node', Style.FAINT)} {canvas.paint(node.name, Style.STRONG)}{address}"


def _preparations(processes: Sequence[ProcessSpec], canvas: Canvas) -> Iterator[str]:
    """What runs once on the node before any process starts."""
    for argv in dict.fromkeys(process.prepare for process in processes if process.prepare):
        yield f"  {canvas.paint('first', Style.STRONG)}"
        yield from command_lines(argv, {}, canvas, indent="    ")


def _process_block(process: ProcessSpec, canvas: Canvas) -> Iterator[str]:
    facts: list[str] = []
    if process.ports:
        facts.append(port_list(process))
    if process.device_indices:
        noun = "device" if len(process.device_indices) == 1 else "devices"
        facts.append(f"{noun} {index_ranges(process.device_indices)}")
    if process.after:
        facts.append(f"after {_shown_ids(process.after)}")
    first, *others = wrap("; ".join(facts), canvas.width, first=f"  {process.id}  ", rest="    ")
    yield first.replace(process.id, canvas.paint(process.id, Style.STRONG), 1).rstrip()
    yield from others
    yield from command_lines(process.argv, process.env, canvas, indent="    ")


def _shown_ids(ids: Sequence[str], limit: int = 4) -> str:
    shown = ", ".join(ids[:limit])
    return shown if len(ids) <= limit else f"{shown} and {len(ids) - limit} more"
