"""What is asked of Slurm for a deployment: one source for words of `sbatch` and lines of a script. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdctl.topology.model import Cluster, Topology
from pdctl.topology.slurm import NO_GRES, HetGroup, Slurm

MARGIN_S = 30  # beside the grace of all processes: Slurm looks at the time limits of jobs that often

# What pdctl itself says to `sbatch`: the key in `cluster.slurm` that decides it, None where none does.
OWNED_OPTIONS: dict[str, str | None] = {
    "job-name": "job_name",
    "comment": None,
    "output": None,
    "error": None,
    "open-mode": None,
    "nodes": None,
    "ntasks": None,
    "ntasks-per-node": None,
    "array": None,
    "wrap": None,
    "wait": None,
    "parsable": None,
    "test-only": None,
    "quiet": None,
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "time": "time_limit",
    "reservation": "reservation",
    "constraint": "constraint",
    "exclude": "exclude",
    "nodelist": "nodelist",
    "nodefile": "nodelist",
    "exclusive": "exclusive",
    "oversubscribe": "exclusive",
    "cpus-per-task": "cpus_per_node",
    "mem": "memory",
    "gres": "gres",
    "gpus": "gpus_per_node",
    "gpus-per-node": "gpus_per_node",
    "segment": "segment",
    "switches": "switches",
    "requeue": "requeue",
    "no-requeue": "requeue",
    "no-kill": "no_kill",
    "signal": "signal_lead_s",
}

_Option = tuple[str, str | None]  # key and value; None: the key alone


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit. `groups` are its components: one, unless it is heterogeneous."""

    job_name: str
    comment: str  # no other submission has it, so that the job can be found by it
    groups: tuple[tuple[_Option, ...], ...]

    def argv(self) -> list[str]:
        """For `sbatch`. Said there, options also win over variables such as SBATCH_PARTITION."""
        words: list[str] = []
        for number, group in enumerate(self.groups):
            words += [":"] if number else []
            words += [_word(option) for option in group]
        return words

    def directives(self) -> list[str]:
        """Lines for a script: the same, for whoever submits it by hand."""
        lines: list[str] = []
        for number, group in enumerate(self.groups):
            lines += ["#SBATCH hetjob"] if number else []
            lines += [f"#SBATCH {_quoted(_word(option))}" for option in group]
        return lines


def job_request(
    topology: Topology, *, token: str, output: str | None = None, bad_nodes: Sequence[str] = ()
) -> JobRequest:
    """`token` tells this submission from any other; `output` is where the batch script's own words go."""
    slurm = topology.cluster.slurm or Slurm()
    name = job_name(topology.name, slurm)
    first = [
        ("job-name", name),
        ("comment", token),
        *([("output", output), ("open-mode", "append")] if output is not None else []),
        ("signal", f"B:TERM@{signal_lead_s(topology)}"),
    ]
    groups = slurm.het_groups or (_only_group(topology.cluster),)
    components = [(*_options(topology.cluster, slurm, group, bad_nodes),) for group in groups]
    # A component that has no batch script would pass the signal on to its tasks.
    others = [("job-name", name), ("comment", token)]
    return JobRequest(
        job_name=name,
        comment=token,
        groups=tuple((*(others if number else first), *each) for number, each in enumerate(components)),
    )


def job_name(deployment: str, slurm: Slurm) -> str:
    return slurm.job_name or f"pdctl-{deployment}"


def signal_lead_s(topology: Topology) -> int:
    """Seconds before its time limit at which the job is told: as many as ending takes, and a margin."""
    slurm = topology.cluster.slurm or Slurm()
    if slurm.signal_lead_s is not None:
        return slurm.signal_lead_s
    return math.ceil(ending_s(topology)) + MARGIN_S


def ending_s(topology: Topology) -> float:
    """At most: the router ends first, with the requests that it has, and then all engines at once."""
    return 2 * topology.health.stop_grace_s


def num_nodes(cluster: Cluster) -> int:
    return cluster.nodes if isinstance(cluster.nodes, int) else len(cluster.nodes)


def is_exclusive(slurm: Slurm) -> bool:
    """Engines want all of a node's processors and memory; a job gets next to nothing unless it asks."""
    if slurm.exclusive is not None:
        return slurm.exclusive
    return slurm.cpus_per_node is None and slurm.memory is None


def _only_group(cluster: Cluster) -> HetGroup:
    return HetGroup(nodes=num_nodes(cluster), devices_per_node=cluster.devices_per_node)


def _options(cluster: Cluster, slurm: Slurm, group: HetGroup, bad_nodes: Sequence[str]) -> Iterator[_Option]:
    # Nodes that the document names are the ones to ask for.
    named = () if isinstance(cluster.nodes, int) else tuple(host.name for host in cluster.nodes)
    nodelist = group.nodelist or (() if slurm.het_groups else slurm.nodelist or named)
    excluded = tuple(dict.fromkeys((*slurm.exclude, *bad_nodes)))
    yield "nodes", str(group.nodes)
    yield from _stated("partition", group.partition or slurm.partition)
    yield from _stated("account", slurm.account)
    yield from _stated("qos", slurm.qos)
    yield from _stated("time", slurm.time_limit)
    yield from _stated("reservation", slurm.reservation)
    yield from _stated("constraint", group.constraint or slurm.constraint)
    yield from _stated("nodelist", ",".join(nodelist) or None)
    yield from _stated("exclude", ",".join(excluded) or None)
    if is_exclusive(slurm):
        yield "exclusive", None
    yield from _stated("cpus-per-task", None if slurm.cpus_per_node is None else str(slurm.cpus_per_node))
    yield from _stated("mem", slurm.memory)
    yield from _accelerators(cluster, slurm, group)
    yield from _stated("segment", None if slurm.segment is None else str(slurm.segment))
    yield from _stated("switches", slurm.switches)
    yield ("requeue" if slurm.requeue else "no-requeue"), None
    if slurm.no_kill:
        yield "no-kill", None
    for argument in slurm.sbatch_args:
        key, has_value, value = argument.removeprefix("--").partition("=")
        yield key, value if has_value else None


def _accelerators(cluster: Cluster, slurm: Slurm, group: HetGroup) -> Iterator[_Option]:
    """As the group says it, else the job, else by number."""
    for said in (group, slurm):
        if said.gres is not None:
            yield from () if said.gres == NO_GRES else [("gres", said.gres)]
            return
        if said.gpus_per_node is not None:
            yield "gpus-per-node", said.gpus_per_node
            return
    devices = cluster.devices_per_node if group.devices_per_node is None else group.devices_per_node
    if devices:
        yield "gpus-per-node", str(devices)


def _stated(key: str, value: str | None) -> Iterator[_Option]:
    if value is not None:
        yield key, value


def _word(option: _Option) -> str:
    key, value = option
    return f"--{key}" if value is None else f"--{key}={value}"


def _quoted(word: str) -> str:
    """As `sbatch` reads a line of a script: words end at spaces, unless they stand in quotes."""
    return f'"{word}"' if any(letter in word for letter in " \t#'") else word
