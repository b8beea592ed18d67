"""How the time to load, check and compile a topology grows with its nodes, from 10 to 10,000.

Every node is listed with its address, and has one prefill or decode instance. The last column is the time per
node relative to the smallest size: near or below 1 means linear growth. Least processor time of the rounds.

    python benchmarks/validate_scale.py [--json FILE]

Takes about half a minute.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import resource
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import declared
from pdctl.rules import check
from pdctl.topology.load import load_text

SIZES = (10, 100, 1_000, 10_000)
ROUNDS = 3

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    num_nodes: int
    document_bytes: int
    load_s: float
    check_s: float
    compile_s: float
    peak_resident_mb: float

    @property
    def total_s(self) -> float:
        return self.load_s + self.check_s + self.compile_s


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how load, check and compile grow with the nodes.")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    measure(SIZES[0])  # imports
    rows = [measure(num_nodes) for num_nodes in SIZES]
    print(table(rows))
    if arguments.json is not None:
        figures = {"python": platform.python_version(), "rows": [asdict(row) for row in rows]}
        arguments.json.write_text(json.dumps(figures, indent=2) + "\n")


def measure(num_nodes: int) -> Row:
    text = document(num_nodes)
    engine, router = plugins.program("engines", "reference"), plugins.program("routers", "mini_lb")
    assert engine is not None
    assert router is not None
    programs = Programs(engine=engine, router=router)
    load_s, topology = fastest(lambda: load_text(text).require())
    # The one finding is that the local executor has one node; no rule is skipped because of it.
    check_s, found = fastest(lambda: check(topology))
    assert {each.code for each in found} <= {"PD408"}
    inventory = declared(topology.cluster)
    compile_s, plan = fastest(lambda: compile_plan(topology, inventory, programs))
    assert len(plan.processes) == num_nodes + 1
    return Row(
        num_nodes=num_nodes,
        document_bytes=len(text),
        load_s=load_s,
        check_s=check_s,
        compile_s=compile_s,
        peak_resident_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    )


def document(num_nodes: int) -> str:
    hosts = "".join(
        f"    - {{name: node-{number:05}, address: 10.{number >> 16}.{number >> 8 & 255}.{number & 255}}}\n"
        for number in range(num_nodes)
    )
    return (
        "schema: pdctl/v1\nname: scale\nmodel: {path: /models/any}\nengine: {kind: reference}\n"
        f"cluster:\n  nodes:\n{hosts}"
        f"prefill: {{instances: {num_nodes // 2}}}\ndecode: {{instances: {num_nodes - num_nodes // 2}}}\n"
    )


def fastest(work: Callable[[], T]) -> tuple[float, T]:
    """The least processor time of the rounds, in seconds, and the result."""
    rounds = [timed(work) for _ in range(ROUNDS)]
    return min(seconds for seconds, _ in rounds), rounds[0][1]


def timed(work: Callable[[], T]) -> tuple[float, T]:
    gc.collect()
    started = time.process_time()
    result = work()
    return time.process_time() - started, result


def table(rows: list[Row]) -> str:
    heads = ("nodes", "KiB", "load ms", "check ms", "compile ms", "peak MiB", "per node")
    first = rows[0].total_s / rows[0].num_nodes
    lines = ["".join(f"{head:>11}" for head in heads)]
    for row in rows:
        cells = (
            f"{row.num_nodes:,}",
            f"{row.document_bytes / 1024:.0f}",
            f"{row.load_s * 1000:.1f}",
            f"{row.check_s * 1000:.1f}",
            f"{row.compile_s * 1000:.1f}",
            f"{row.peak_resident_mb:.0f}",
            f"{row.total_s / row.num_nodes / first:.2f}",
        )
        lines.append("".join(f"{cell:>11}" for cell in cells))
    return "\n".join(lines)


if __name__ == "__main__":
    main()
