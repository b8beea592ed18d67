"""How long `pdctl --help` and `pdctl plan` take, and what a bare interpreter takes in the same run.

    python benchmarks/cli_startup.py [--json FILE]

The peer is NVIDIA's `srtctl`: 0.57 s for `--help` and 0.65 s for `dry-run`, measured on a two-core virtual
machine (AMD EPYC, Python 3.11.7) on 2026-11-29; it needn't be installed. The interpreter's own start is the
floor. Peak resident memory is the operator's side of pdctl.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RUNS = 15
SRTCTL_S = {"--help": 0.57, "plan": 0.65}


def measure(argv: list[str], environ: dict[str, str]) -> dict[str, float]:
    """Median wall time and peak memory of one command, files in the page cache."""
    times: list[float] = []
    peak_kib = 0
    for _ in range(RUNS + 1):
        began = time.perf_counter()
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, env=environ)
        _, status, usage = os.wait4(process.pid, 0)
        times.append(time.perf_counter() - began)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, argv)
        peak_kib = max(peak_kib, usage.ru_maxrss)
    return {"seconds": statistics.median(times[1:]), "peak_mib": peak_kib / 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        environ = {**os.environ, "PDCTL_STATE_DIR": scratch}
        environ.pop("PYTHONDONTWRITEBYTECODE", None)  # every start would compile everything
        pdctl = [str(Path(sys.executable).with_name("pdctl"))]
        laptop = str(ROOT / "topologies" / "laptop_2p2d.yaml")
        large = [laptop, "--set", "prefill.instances=20", "--set", "decode.instances=80"]
        figures = {
            "python -c pass": measure([sys.executable, "-c", "pass"], environ),
            "pdctl --help": measure([*pdctl, "--help"], environ),
            "pdctl plan laptop_2p2d.yaml": measure([*pdctl, "plan", laptop], environ),
            "pdctl plan, 100 instances": measure([*pdctl, "plan", *large], environ),
        }
    for name, figure in figures.items():
        seconds = figure["seconds"]
        peer = SRTCTL_S["--help" if "--help" in name else "plan"]
        ratio = f"{seconds / peer:5.2f} of srtctl's {peer} s"
        print(f"{name:<30} {seconds:6.3f} s  {figure['peak_mib']:4.0f} MiB  {ratio}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
