"""Threads and the fabric of the KV transfer."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.memory_pool import POOL, pool_of
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import backend_of, number
from pdctl.topology.model import Topology

# sglang srt/disaggregation/mooncake/conn.py: min(max(4, cpus // 16), 12) threads for 4 queues.
_FEWEST_THREADS, _MOST_THREADS = 4, 12
_THREADS, _QUEUES = "SGLANG_DISAGGREGATION_THREAD_POOL_SIZE", "SGLANG_DISAGGREGATION_QUEUE_SIZE"


def _queues_have_threads(topology: Topology) -> Iterable[Diagnostic]:
    if backend_of(topology) != "mooncake":
        return
    for variables in process_variables(topology, topology.prefill, _QUEUES, _THREADS):
        queues, num_threads = variables.get(_QUEUES), number(variables.get(_THREADS))
        num_queues = number(queues)
        if queues is None or num_queues is None:
            continue
        surely_few = num_queues > (_MOST_THREADS if num_threads is None else num_threads)
        perhaps_few = num_threads is None and num_queues > _FEWEST_THREADS
        if surely_few or perhaps_few:
            by_cpus = f"{_FEWEST_THREADS} to {_MOST_THREADS} threads, by the number of CPUs"
            yield at_value(
                topology,
                queues.path,
                "PD420",
                f"{num_queues} transfer queues need as many threads, prefill has "
                + (by_cpus if num_threads is None else str(num_threads)),
                severity=Severity.ERROR if surely_few else Severity.WARNING,
                notes=("with fewer threads than queues, prefill ends with an assertion",),
                help=f"set `transfer.threads: {num_queues}` or more",
            )


def _fabric_reaches(topology: Topology) -> Iterable[Diagnostic]:
    """Nodes that NVLink joins can't be told from a document, but one node and disjoint nodes can."""
    nodes = topology.cluster.nodes
    num_nodes = nodes if isinstance(nodes, int) else len(nodes)
    nvlink = topology.transfer.nvlink
    if nvlink == "mnnvl" and num_nodes == 1:
        yield at_value(
            topology,
            ("transfer", "nvlink"),
            "PD421",
            "NVLink between nodes is asked for, and the cluster is one node",
            severity=Severity.WARNING,
            notes=("without such a fabric Mooncake can't allocate its memory, and engines end at start",),
            help="set `nvlink: intra_node`",
        )
    prefill, decode = set(topology.prefill.on), set(topology.decode.on)
    if nvlink == "intra_node" and prefill and decode and not prefill & decode:
        yield at_value(
            topology,
            ("transfer", "nvlink"),
            "PD421",
            "NVLink inside a node is asked for, and no node has both prefill and decode",
            help="set `nvlink: off`, or `mnnvl` where the nodes share an NVLink fabric",
        )
    if num_nodes == 1 and nvlink == "off":
        yield from _variable_for_many_nodes(topology)


def _variable_for_many_nodes(topology: Topology) -> Iterable[Diagnostic]:
    if backend_of(topology) != "mooncake":
        return
    found = {
        stated.path: f"{name}: {stated.value}"
        for role in topology.roles
        for variables in process_variables(topology, role, "MC_FORCE_MNNVL", POOL)
        for name, stated in variables.items()
        if name != POOL or pool_of(stated) == "NVLINK"
    }
    for path, shown in found.items():
        yield at_value(
            topology,
            path,
            "PD421",
            f"`{shown}` asks for NVLink between nodes, and the cluster is one node",
            severity=Severity.WARNING,
            notes=("engines end at start where the fabric isn't there",),
            help="remove it, and set `transfer.nvlink: intra_node` for NVLink inside the node",
        )


RULES = (
    Rule(code="PD420", check=_queues_have_threads),
    Rule(code="PD421", check=_fabric_reaches),
)
