"""What supervision costs: starts, status and stops of many processes here, and the memory of their shims.

    python benchmarks/shim_scale.py [--num 64] [--at-once 8] [--json FILE]

The processes are `sleep`; everything else is what `pdctl up`, `status` and `down` do. PSS counts shared
pages by share, so the sum is what the shims really cost together.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from pdctl.executors import local
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind
from pdctl.topology.model import Cluster

T = TypeVar("T")


def process_spec(number: int) -> ProcessSpec:
    return ProcessSpec(
        id=f"decode-{number}.0",
        instance_id=f"decode-{number}",
        role=RoleKind.DECODE,
        node="localhost",
        node_rank=0,
        device_indices=(),
        argv=("sleep", "1000"),
        env={},
        listen="127.0.0.1",
        ports=(),
        after=(),
        ready=None,
        grace_s=5.0,
        digest="d",
    )


def timed(act: Callable[[], T]) -> tuple[float, T]:
    began = time.perf_counter()
    result = act()
    return time.perf_counter() - began, result


def shim_pss_bytes(state: str) -> list[int]:
    """PSS of every shim, from the pids that they recorded."""
    figures: list[int] = []
    for path in Path(state).glob("run/bench/*/*/status.json"):
        rollup = Path(f"/proc/{json.loads(path.read_bytes())['shim_pid']}/smaps_rollup").read_text()
        figures.append(
            next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
        )
    return figures


def measure(num_processes: int, num_at_once: int, state: str) -> dict[str, float]:
    executor = local.create(Cluster(), {"PDCTL_STATE_DIR": state})
    processes = tuple(process_spec(number) for number in range(num_processes))
    plan = LaunchPlan(
        name="bench",
        executor="local",
        topology_digest="t",
        nodes=(),
        instances=(),
        processes=processes,
        served_model="none",
        canary=False,
        digest="p",
    )
    try:
        with ThreadPoolExecutor(num_at_once) as pool:
            start_s, outcomes = timed(
                lambda: list(pool.map(lambda each: executor.start(plan, each), processes))
            )
        if any(outcome.error for outcome in outcomes):
            raise SystemExit(f"not all started: {outcomes}")
        status_s = statistics.median(timed(lambda: executor.observe("bench"))[0] for _ in range(5))
        pss = shim_pss_bytes(state)
    finally:
        stop_s, _ = timed(lambda: executor.stop("bench", executor.observe("bench").processes))
    return {
        "num_processes": num_processes,
        "num_at_once": num_at_once,
        "start_s": round(start_s, 3),
        "status_s": round(status_s, 4),
        "stop_s": round(stop_s, 3),
        "shim_pss_mean_mb": round(statistics.mean(pss) / 1e6, 2),
        "shim_pss_sum_mb": round(sum(pss) / 1e6, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num", type=int, default=64, help="processes")
    parser.add_argument("--at-once", type=int, default=8, help="starts at the same time")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as state:
        figures = measure(arguments.num, arguments.at_once, state)
    print(f"{'figure':<20} {'value':>10}   load: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    for name, value in figures.items():
        print(f"{name:<20} {value:>10}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
