"""One command on many hosts: pdctl against other ways to do it, on the same sshd, in one run. Needs root.

    python benchmarks/ssh_fan_out.py [--sizes 16,64,256] [--rounds 3] [--only NAME,NAME] [--json FILE]

Cold: the first command, connecting included. Warm: a second one. Memory: the sum of PSS of all that a
contender runs on our side, at its highest. The servers offer one key exchange, curve25519, so that all do the
same arithmetic; and they share this machine's cores with the client, so a good part of each figure is theirs.
The peers live in an environment of their own, which is made on the first run (pip, 60 s).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from benchmarks.ssh_contenders import CONTENDERS  # noqa: E402
from tests.testbed.hosts.loopback import PORT, LoopbackHosts, new_loopback_hosts  # noqa: E402

PEERS = (
    *("asyncssh==2.24.1", "parallel-ssh==2.16.0.post1", "ClusterShell==1.10.1"),
    *("pyinfra==3.10.0", "ansible-core==2.19.14"),
)
PEERS_FOLDER = Path(tempfile.gettempdir()) / "pdctl-ssh-peers"
MARKER = "PDCTL_BENCHMARK"  # in the environment of all that a contender starts
SAMPLE_EVERY_S = 0.1
REPEATED_BELOW_S = 8.0  # what takes longer is measured once


def peers_python() -> Path:
    python = PEERS_FOLDER / "bin/python"
    done = PEERS_FOLDER / "done"
    if not done.is_file():
        venv.create(PEERS_FOLDER, with_pip=True, clear=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--quiet", *PEERS], check=True)
        done.touch()
    return python


def measured(name: str, file: Path, *, samples_memory: bool) -> dict[str, float]:
    """One run of one contender. Nothing of it is left."""
    mark = f"{os.getpid()}-{time.monotonic_ns()}"
    python = sys.executable if name == "pdctl" else peers_python()
    child = subprocess.Popen(
        [python, ROOT / "benchmarks/ssh_contenders.py", name, file],
        env={**os.environ, MARKER: mark, "PYTHONPATH": str(ROOT), "ANSIBLE_HOST_KEY_CHECKING": "True"},
        stdout=subprocess.PIPE,
    )
    peak = [0]
    sampler = threading.Thread(target=_sample, args=(child, mark, peak))
    if samples_memory:
        sampler.start()
    try:
        output = child.communicate()[0]
    finally:
        if samples_memory:
            sampler.join()
        for pid in list(_marked(mark)):
            os.kill(pid, signal.SIGTERM)
    if child.returncode:
        raise SystemExit(f"{name} failed")
    return {**json.loads(output), "peak_mib": peak[0] / 1024}


def _sample(child: subprocess.Popen[bytes], mark: str, peak: list[int]) -> None:
    while child.poll() is None:
        peak[0] = max(peak[0], sum(map(_pss_kib, _marked(mark))))
        time.sleep(SAMPLE_EVERY_S)


def _marked(mark: str) -> Iterator[int]:
    wanted = f"{MARKER}={mark}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if wanted in path.read_bytes().split(b"\0"):
                yield int(path.parent.name)
        except OSError:  # it ended
            continue


def _pss_kib(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it ended
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)


def compare(
    hosts: LoopbackHosts, size: int, names: list[str], num_rounds: int
) -> dict[str, dict[str, float]]:
    """Contenders take turns, so that all see the same weather."""
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    for index in range(num_rounds):
        for name in names:
            if index == 0 or runs[name][0]["cold_s"] < REPEATED_BELOW_S:
                runs[name].append(_run(hosts, size, name, samples_memory=False))
    for name in names:
        memory = _run(hosts, size, name, samples_memory=True)["peak_mib"] if num_rounds > 1 else 0.0
        runs[name] = [{**each, "peak_mib": memory} for each in runs[name]]
    keys = ("cold_s", "warm_s", "peak_mib")
    return {name: {key: statistics.median(run[key] for run in runs[name]) for key in keys} for name in names}


def _run(hosts: LoopbackHosts, size: int, name: str, *, samples_memory: bool) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="pd") as folder:  # short: sockets lie in it
        file = Path(folder) / "hosts.json"
        names = hosts.names[:size]
        login = {
            "names": names,
            "addresses": [hosts.address(each) for each in names],
            "port": PORT,
            "key": str(hosts.base / "id"),
            "config": str(hosts.ssh_config),
            "known_hosts": str(hosts.base / "known_hosts"),
            "folder": folder,
        }
        file.write_text(json.dumps(login))
        return measured(name, file, samples_memory=samples_memory)


def table(size: int, figures: dict[str, dict[str, float]]) -> str:
    best = {key: min(each[key] for each in figures.values()) for key in ("cold_s", "warm_s")}
    lines = [f"\n| {size} hosts | cold | of the fastest | warm | of the fastest | memory |", f"|{'---|' * 6}"]
    for name, each in figures.items():
        cold, warm = each["cold_s"], each["warm_s"]
        ratios = cold / best["cold_s"], warm / best["warm_s"]
        lines.append(
            f"| {name} | {cold:.2f} s | {ratios[0]:.2f} | {warm:.2f} s | {ratios[1]:.2f} "
            f"| {each['peak_mib']:.0f} MiB |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="16,64,256", help="numbers of hosts")
    parser.add_argument("--rounds", type=int, default=3, help="one round measures no memory")
    parser.add_argument("--only", help="names of contenders, with commas between")
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    sizes = [int(each) for each in arguments.sizes.split(",")]
    names = [each for each in CONTENDERS if arguments.only is None or each in arguments.only.split(",")]
    peers_python()
    figures: dict[int, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as base:
        one_exchange = "KexAlgorithms curve25519-sha256,curve25519-sha256@libssh.org\n"
        with new_loopback_hosts(Path(base), max(sizes), sshd=one_exchange) as hosts:
            for size in sizes:
                figures[size] = compare(hosts, size, names, arguments.rounds)
                print(table(size, figures[size]), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
