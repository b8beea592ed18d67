"""What a job may ask Slurm for, as far as the document alone tells; other executors ask for nothing."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.executors.slurm_job.request import OWNED_OPTIONS, ending_s, num_nodes, signal_lead_s
from pdctl.executors.slurm_job.times import time_s
from pdctl.hostlist import unfold
from pdctl.program import Rule
from pdctl.rules.base import at_value, line_of
from pdctl.topology.model import Topology
from pdctl.topology.slurm import NO_GRES, HetGroup, Slurm
from pdctl.topology.source import DocumentPath

_PATH: DocumentPath = ("cluster", "slurm")
# What each step is started with; `pdctl/executors/slurm_job/srun.py` says it.
_OWNED_OF_STEPS: dict[str, str | None] = {
    "jobid": None,
    "het-group": None,
    "nodes": None,
    "nodelist": None,
    "ntasks": None,
    "overlap": None,
    "exact": None,
    "exclusive": None,
    "gres": "gres",
    "gpus": "gpus_per_node",
    "gpus-per-node": "gpus_per_node",
    "gpus-per-task": "gpus_per_node",
    "job-name": None,
    "input": None,
    "output": None,
    "error": None,
    "export": None,
    "chdir": None,
    "immediate": None,
    "kill-on-bad-exit": None,
    "pty": None,
    "container-image": "container",
    "container-mounts": "container",
}
_GPUS = re.compile(r"(?:^|,)gpu(?::[^:,]+)??(?::(\d+))?(?=,|$)")


def _slurm(topology: Topology) -> Slurm | None:
    return topology.cluster.slurm if topology.cluster.executor == "slurm" else None


def _times_can_be_read(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None:
        return
    _, _, wait = (slurm.switches or "").partition("@")
    for key, text in (("time_limit", slurm.time_limit or ""), ("switches", wait)):
        if text and time_s(text) is None:
            yield at_value(
                topology,
                (*_PATH, key),
                "PD350",
                f"`{text}` is no span of time that Slurm reads",
                help="write `minutes`, `hours:minutes:seconds` or `days-hours:minutes:seconds`",
            )


def _limit_leaves_time_to_serve(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    limit_s = None if slurm is None else time_s(slurm.time_limit or "")
    if slurm is None or limit_s is None or slurm.time_limit is None:
        return
    lead_s, ready_s = signal_lead_s(topology), topology.health.ready_deadline_s
    if limit_s > lead_s + ready_s:
        return
    ends_at_once = limit_s <= lead_s
    yield at_value(
        topology,
        (*_PATH, "time_limit"),
        "PD351",
        f"the job may run for {_span(limit_s)}, and is told to end {_span(lead_s)} before that"
        if ends_at_once
        else f"the job may run for {_span(limit_s)}, of which starting may take {_span(ready_s)}",
        severity=Severity.ERROR if ends_at_once else Severity.WARNING,
        notes=(f"Slurm reads `{slurm.time_limit}` as {_span(limit_s)}",),
        help=f"for hours write `{slurm.time_limit}:00`" if slurm.time_limit.count(":") == 1 else "allow more",
    )


def _warning_comes_early_enough(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None or slurm.signal_lead_s is None or slurm.signal_lead_s >= ending_s(topology):
        return
    needed_s = math.ceil(ending_s(topology))
    yield at_value(
        topology,
        (*_PATH, "signal_lead_s"),
        "PD352",
        f"the job is told {_span(slurm.signal_lead_s)} before its end, and ending may take {_span(needed_s)}",
        severity=Severity.WARNING,
        notes=(f"router and engines have `health.stop_grace_s` each, {topology.health.stop_grace_s:g} s",),
        help=f"set `signal_lead_s` to {needed_s} or more, or remove it",
    )


def _groups_add_up(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None or not slurm.het_groups:
        return
    in_groups, wanted = sum(group.nodes for group in slurm.het_groups), num_nodes(topology.cluster)
    if in_groups != wanted:
        yield at_value(
            topology,
            (*_PATH, "het_groups"),
            "PD353",
            f"the groups have {in_groups} nodes, the cluster has {wanted}",
            notes=(f"`cluster.nodes` is at {line_of(topology, ('cluster', 'nodes'))}",),
            help=f"set `cluster.nodes` to {in_groups}, or change the groups",
        )


def _accelerators_suffice(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None:
        return
    num_devices = topology.cluster.devices_per_node
    yield from _accelerators_of(topology, slurm, _PATH, num_devices)
    for index, group in enumerate(slurm.het_groups):
        own = num_devices if group.devices_per_node is None else group.devices_per_node
        yield from _accelerators_of(topology, group, (*_PATH, "het_groups", index), own)


def _accelerators_of(
    topology: Topology, said: Slurm | HetGroup, path: DocumentPath, num_devices: int
) -> Iterator[Diagnostic]:
    if said.gres not in (None, NO_GRES) and said.gpus_per_node is not None:
        yield at_value(
            topology,
            (*path, "gpus_per_node"),
            "PD354",
            "accelerators are asked for twice, by `gres` and by `gpus_per_node`",
            help="remove one of them",
        )
        return
    key = "gres" if said.gpus_per_node is None else "gpus_per_node"
    asked = _num_gpus(said)
    if asked is not None and asked < num_devices:
        yield at_value(
            topology,
            (*path, key),
            "PD354",
            f"the job asks for {asked} accelerators of each node, the plan uses {num_devices}",
            notes=("processes would be given devices that the job doesn't have",),
            help=f"ask for {num_devices}, or lower `devices_per_node`",
        )


def _num_gpus(said: Slurm | HetGroup) -> int | None:
    """None where nothing is said, or where nodes come whole."""
    if said.gpus_per_node is not None:
        return int(said.gpus_per_node.rpartition(":")[2])
    if said.gres in (None, NO_GRES):
        return None
    found = _GPUS.search(said.gres or "")
    return 0 if found is None else int(found[1] or 1)


def _options_have_one_place(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None:
        return
    for key, words, owned in (
        ("sbatch_args", slurm.sbatch_args, OWNED_OPTIONS),
        ("srun_args", slurm.srun_args, _OWNED_OF_STEPS),
    ):
        for index, word in enumerate(words):
            option = word.removeprefix("--").partition("=")[0]
            if option in owned:
                field = owned[option]
                yield at_value(
                    topology,
                    (*_PATH, key, index),
                    "PD355",
                    f"`--{option}` is pdctl's to set",
                    help=f"use `cluster.slurm.{field}`" if field else "remove it",
                )


def _nodes_can_be_had(topology: Topology) -> Iterable[Diagnostic]:
    slurm = _slurm(topology)
    if slurm is None:
        return
    faults: list[Diagnostic] = []
    excluded = set(_names(topology, slurm.exclude, (*_PATH, "exclude"), faults))
    lists = [(slurm.nodelist, _PATH, num_nodes(topology.cluster))]
    lists += [
        (group.nodelist, (*_PATH, "het_groups", index), group.nodes)
        for index, group in enumerate(slurm.het_groups)
    ]
    for words, path, most in lists:
        names = _names(topology, words, (*path, "nodelist"), faults)
        if both := [name for name in names if name in excluded]:
            faults.append(_cannot(topology, path, f"`{both[0]}` is both wanted and excluded", "decide"))
        if len(names) > most:
            message = f"{len(names)} nodes are wanted by name, the job has {most}"
            faults.append(_cannot(topology, path, message, "name fewer, or let the job have more"))
    yield from faults


def _cannot(topology: Topology, path: DocumentPath, message: str, help: str) -> Diagnostic:
    return at_value(topology, (*path, "nodelist"), "PD356", message, help=help)


def _names(
    topology: Topology, words: tuple[str, ...], path: DocumentPath, faults: list[Diagnostic]
) -> list[str]:
    names: list[str] = []
    for index, word in enumerate(words):
        try:
            names += unfold(word)
        except ValueError as error:
            faults.append(at_value(topology, (*path, index), "PD356", str(error), help="write `gpu[01-04]`"))
    return names


def _span(seconds: float) -> str:
    if seconds < 120 or seconds % 60:
        return f"{seconds:g} seconds"
    minutes = int(seconds // 60)
    return f"{minutes} minutes" if minutes < 120 or minutes % 60 else f"{minutes // 60} hours"


RULES = (
    Rule(code="PD350", check=_times_can_be_read),
    Rule(code="PD351", check=_limit_leaves_time_to_serve),
    Rule(code="PD352", check=_warning_comes_early_enough),
    Rule(code="PD353", check=_groups_add_up),
    Rule(code="PD354", check=_accelerators_suffice),
    Rule(code="PD355", check=_options_have_one_place),
    Rule(code="PD356", check=_nodes_can_be_had),
)
