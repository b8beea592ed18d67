"""`pdctl up` of small processes on a real Slurm, against bare `sbatch` and `srun` of the same. Needs root.

    python benchmarks/slurm_up.py [--sizes 13,64] [--rounds 3] [--json FILE]

One process on each virtual node and a router, each as small as a bare Python that answers HTTP. The bare way
is a batch script that starts an `srun` for each process and is done when all of them answer: it records
nothing, checks nothing and finds nothing again. All nodes share this machine's cores with pdctl and with each
other, so a figure is mostly their work; the ratio is what counts.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from benchmarks.ssh_up import ANSWERING, PORT, PYTHON, write_plugin  # noqa: E402
from tests.testbed.slurm.cluster import SlurmCluster, new_cluster  # noqa: E402
from tests.testbed.slurm.spec import SlurmSpec  # noqa: E402

# The same program as in the bare way, but on its node's own address: all nodes are one machine here.
ON_ADDRESS = ANSWERING.replace('("0.0.0.0", int(sys.argv[1]))', "(sys.argv[2], int(sys.argv[1]))")
ROUTER_PORT = PORT + 500  # of the bare way
PLUGIN_COMMAND = 'str(slot.endpoint("http").port))'
LOOK = f"""\
import socket, sys, time
for address in sys.argv[1:]:
    while True:
        try:
            socket.create_connection((address, {PORT}), 5).close()
            break
        except OSError:
            time.sleep(0.05)
"""

Figures = dict[str, float]


def make_plugin(folder: Path) -> None:
    """The engine and router of `ssh_up.py`, told their node's address too."""
    write_plugin(folder)
    file = folder / "small.py"
    text = file.read_text(encoding="utf-8")
    assert PLUGIN_COMMAND in text
    text = text.replace(PLUGIN_COMMAND, 'str(slot.endpoint("http").port), slot.node.address)')
    file.write_text(text.replace(repr(ANSWERING), repr(ON_ADDRESS)), encoding="utf-8")


def topology_file(folder: Path, size: int) -> Path:
    file = folder / f"many-{size}.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: many\nmodel: {path: none}\nengine: {kind: small}\n"
        f"cluster: {{executor: slurm, nodes: {size}}}\n"
        f"prefill: {{nodes: 1}}\ndecode: {{instances: {size - 1}, nodes: 1}}\n"
        "router: {kind: small}\n",
        encoding="utf-8",
    )
    return file


def bare_script(folder: Path, slurm: SlurmCluster, size: int) -> Path:
    """Ends when all answer, and takes its steps with it."""
    lines = [f"#!/bin/bash\n#SBATCH --nodes={size} --exclusive --output={folder}/bare-%j.out"]
    nodes = slurm.nodes[:size]
    for node, port in (*((node, PORT) for node in nodes), (nodes[0], ROUTER_PORT)):
        words = [PYTHON, "-I", "-S", "-c", ON_ADDRESS, str(port), slurm.address(node)]
        lines.append(f"srun --overlap --nodes=1 --ntasks=1 --nodelist={node} {shlex.join(words)} &")
    addresses = [slurm.address(node) for node in nodes]
    lines += [shlex.join([PYTHON, "-I", "-S", "-c", LOOK, *addresses]), f"touch {folder}/served", "wait"]
    file = folder / f"bare-{size}.sh"
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def seconds(act: Callable[[], object]) -> float:
    began = time.perf_counter()
    act()
    return time.perf_counter() - began


def run(words: Iterable[str | Path], environ: dict[str, str]) -> str:
    done = subprocess.run(
        [str(word) for word in words], env=environ, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"{words} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def bare_up(script: Path, folder: Path, environ: dict[str, str]) -> None:
    (folder / "served").unlink(missing_ok=True)
    run(["sbatch", script], environ)
    while not (folder / "served").exists():
        time.sleep(0.02)


def measure(slurm: SlurmCluster, size: int, folder: Path, environ: dict[str, str]) -> Figures:
    script, file = bare_script(folder, slurm, size), topology_file(folder, size)
    pdctl = [sys.executable, "-m", "pdctl"]
    figures = {"bare `sbatch` and `srun`": seconds(lambda: bare_up(script, folder, environ))}
    slurm.heal()
    up = [*pdctl, "up", str(file), "--no-canary", "--skip-doctor"]
    figures["`pdctl up`"] = seconds(lambda: run(up, environ))
    figures["`pdctl status`"] = seconds(lambda: run([*pdctl, "status", "many"], environ))
    figures["`pdctl down`"] = seconds(lambda: run([*pdctl, "down", "many"], environ))
    slurm.heal()
    return figures


def table(figures: dict[int, Figures]) -> str:
    sizes = list(figures)
    lines = [
        f"| | {' | '.join(f'{size} nodes | against bare' for size in sizes)} |",
        f"|{'---|' * (1 + 2 * len(sizes))}",
    ]
    for name in figures[sizes[0]]:
        cells = [
            f"{figures[size][name]:.2f} s | {figures[size][name] / next(iter(figures[size].values())):.2f}"
            for size in sizes
        ]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="13,64", help="numbers of nodes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    figures: dict[int, Figures] = {}
    sizes = [int(each) for each in arguments.sizes.split(",")]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_plugin(folder)
        with new_cluster(folder / "slurm", SlurmSpec(num_nodes=max(sizes), gpus=0)) as slurm:
            environ = {
                **slurm.environ,
                "PYTHONPATH": os.pathsep.join((str(folder), str(ROOT))),
                "PDCTL_STATE_DIR": str(folder / "state"),
            }
            for size in sizes:
                rounds = [measure(slurm, size, folder, environ) for _ in range(arguments.rounds)]
                figures[size] = {name: statistics.median(each[name] for each in rounds) for name in rounds[0]}
                print(f"{size} nodes measured", file=sys.stderr, flush=True)
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
