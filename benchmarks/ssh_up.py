"""`pdctl up`, `status`, `doctor` and `down` of one small process on each of many hosts. Needs root.

    python benchmarks/ssh_up.py [--sizes 16,64,128] [--rounds 1] [--json FILE]

The hosts have processes, files and a network of their own, but share this machine's cores with pdctl, so
most of each figure is their work: the share that is pdctl's own stands beside it. What is started answers
HTTP and costs as much as a bare Python. The limit is a shell's loop, `ssh HOST setsid COMMAND &`, which waits
for nothing, records nothing and finds nothing again; `true` is the same with nothing to start. Lines below
the commands are single steps of one executor, over connections that stand.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[0] = str(ROOT)

from pdctl.executors import ssh  # noqa: E402
from pdctl.plan.model import LaunchPlan, ProcessSpec, RoleKind  # noqa: E402
from pdctl.state.observed import Phase  # noqa: E402
from pdctl.topology.model import Cluster, Host, Ssh  # noqa: E402
from tests.testbed.hosts.host_set import HostSet, new_hosts  # noqa: E402
from tests.testbed.hosts.host_spec import HostSpec  # noqa: E402

AT_ONCE = 32
PORT = 21900
PYTHON = "/usr/bin/python3"
# An HTTP server that starts as fast as Python itself.
ANSWERING = """\
import sys, _socket
s = _socket.socket(); s.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
s.bind(("0.0.0.0", int(sys.argv[1]))); s.listen(64)
while True:
    c = _socket.socket(fileno=s._accept()[0])
    c.recv(4096); c.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 2\\r\\n\\r\\n{}"); c.close()
"""
PLUGIN = """\
from dataclasses import dataclass
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import PortNeed
from pdctl.routers.mini_lb import MiniLoadBalancer

class Small(MiniLoadBalancer):
    requests_metric = None
    def port_needs(self, part, topology):
        http = PortNeed(name="http", base={port}, path=(part.name, "port"))
        boot = PortNeed(name="bootstrap", base={port} + 1000, path=(part.name, "bootstrap_port"))
        return (http, boot) if part.name == "prefill" else (http,)
    def command(self, slot, layout):
        argv = ({python!r}, "-I", "-S", "-c", {program!r}, str(slot.endpoint("http").port))
        return Command(argv=argv, env={{}})
    def ready(self, slot, layout):
        http = slot.endpoint("http")
        return Probe(host=http.host, port=http.port, path="/", deadline_s=60.0)

PROGRAM = Small()
"""
ROUTER_PLUGIN = """\
from small import Small, PortNeed

class SmallRouter(Small):
    def port_needs(self, part, topology):
        return (PortNeed(name="http", base={port}, path=("router", "port")),)

PROGRAM = SmallRouter()
"""
ENTRY_POINTS = "[pdctl.engines]\nsmall = small\n[pdctl.routers]\nsmall = small_router\n"

Figures = dict[str, dict[str, float]]


def write_plugin(folder: Path) -> None:
    (folder / "small.py").write_text(PLUGIN.format(port=PORT, python=PYTHON, program=ANSWERING))
    (folder / "small_router.py").write_text(ROUTER_PLUGIN.format(port=PORT))
    metadata = folder / "small-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: small\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS)


def write_topology(file: Path, hosts: HostSet, names: list[str]) -> None:
    nodes = ", ".join(f"{{name: {name}, address: {hosts[name].address}}}" for name in names)
    file.write_text(
        "schema: pdctl/v1\nname: many\nmodel: {path: none}\nengine: {kind: small}\n"
        f"cluster:\n  executor: ssh\n  ssh: {{config: {hosts.ssh_config}}}\n  nodes: [{nodes}]\n"
        f"prefill: {{on: [{names[1]}]}}\n"
        f"decode: {{instances: {len(names) - 2}, on: [{', '.join(names[2:])}]}}\n"
        f"router: {{kind: small, on: {names[0]}}}\n"
    )


def timed(act: Callable[[], object]) -> dict[str, float]:
    """Seconds, and of them CPU seconds of this process and the children that it has waited for."""
    cpu_began, began = _cpu_s(), time.perf_counter()
    act()
    return {"seconds": time.perf_counter() - began, "own_cpu_s": _cpu_s() - cpu_began}


def _cpu_s() -> float:
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def command(words: list[str], environ: dict[str, str]) -> dict[str, float]:
    """One `pdctl` from its start to its end."""
    began = time.perf_counter()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [sys.executable, "-m", "pdctl", *words], env=environ, stdout=output, stderr=subprocess.STDOUT
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        text = output.read().decode()
    if child.returncode != 0:
        raise SystemExit(f"`pdctl {words[0]}` failed:\n{text}")
    return {
        "seconds": time.perf_counter() - began,
        "own_cpu_s": usage.ru_utime + usage.ru_stime,
        "peak_mib": usage.ru_maxrss / 1024,
    }


def bare_loop(hosts: HostSet, names: list[str], line: str) -> None:
    words = ["ssh", "-n", "-F", str(hosts.ssh_config), "-o", "BatchMode=yes"]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = list(
            pool.map(lambda name: subprocess.run([*words, name, line], check=False).returncode, names)
        )
    if any(codes):
        raise SystemExit(f"the loop failed: {codes}")


def bare(hosts: HostSet, names: list[str]) -> Figures:
    program = shlex.join([PYTHON, "-I", "-S", "-c", ANSWERING, str(PORT)])
    start = f"setsid {program} >/dev/null 2>&1 </dev/null & echo $! > /tmp/small.pid"
    return {
        "loop of `ssh`: true": timed(lambda: bare_loop(hosts, names, "true")),
        "loop of `ssh`: start": timed(lambda: bare_loop(hosts, names, start)),
        "loop of `ssh`: kill": timed(lambda: bare_loop(hosts, names, "kill $(cat /tmp/small.pid)")),
    }


def commands(file: Path, environ: dict[str, str]) -> Figures:
    return {
        "`pdctl doctor`": command(["doctor", str(file)], environ),
        "`pdctl up`": command(["up", "--no-canary", str(file)], environ),
        "`pdctl status`": command(["status", "many"], environ),
        "`pdctl down`": command(["down", "many"], environ),
    }


def process_spec(number: int, name: str) -> ProcessSpec:
    return ProcessSpec(
        id=f"decode-{number}.0",
        instance_id=f"decode-{number}",
        role=RoleKind.DECODE,
        node=name,
        node_rank=0,
        device_indices=(),
        argv=(PYTHON, "-I", "-S", "-c", ANSWERING, str(PORT)),
        env={},
        listen="0.0.0.0",
        ports=(),
        after=(),
        ready=None,
        grace_s=5.0,
        digest="d",
    )


def steps(hosts: HostSet, names: list[str]) -> Figures:
    """What an executor does on all hosts at a time."""
    nodes = tuple(Host(name=name, address=hosts[name].address) for name in names)
    executor = ssh.create(
        Cluster(executor="ssh", nodes=nodes, ssh=Ssh(config=str(hosts.ssh_config), fan_out=AT_ONCE)),
        dict(os.environ),
    )
    processes = tuple(process_spec(number, name) for number, name in enumerate(names))
    plan = LaunchPlan(
        name="steps",
        executor="ssh",
        topology_digest="t",
        nodes=(),
        instances=(),
        processes=processes,
        served_model="none",
        canary=False,
        digest="p",
    )

    def start() -> None:
        outcomes = executor.start(plan, processes)
        assert all(outcome.error is None for outcome in outcomes), outcomes

    def look() -> None:
        phases = [each.phase for each in executor.observe("steps").processes]
        assert phases == [Phase.STARTING] * len(names), phases

    found = {
        "connect, ship": timed(lambda: executor.observe("steps")),
        "start": timed(start),
        "status": timed(look),
        "stop": timed(lambda: executor.stop("steps", executor.observe("steps").processes)),
    }
    executor.forget("steps")
    executor.tidy()
    return found


def measure(hosts: HostSet, names: list[str], scratch: Path) -> Figures:
    file = scratch / f"many-{len(names)}.yaml"
    write_topology(file, hosts, names)
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(scratch), str(ROOT))),
        "PDCTL_STATE_DIR": str(scratch / "state"),
    }
    return {**bare(hosts, names), **commands(file, environ), **steps(hosts, names)}


def median(rounds: list[Figures]) -> Figures:
    return {
        name: {key: statistics.median(each[name][key] for each in rounds) for key in first}
        for name, first in rounds[0].items()
    }


def table(figures: dict[int, Figures]) -> str:
    sizes = list(figures)
    heads = [f"{size} hosts" for size in sizes]
    lines = [
        f"| | {' | '.join(heads)} | per host | pdctl's own CPU | peak memory |",
        f"|{'---|' * (4 + len(sizes))}",
    ]
    largest = figures[sizes[-1]]
    for name, last in largest.items():
        times = " | ".join(f"{figures[size][name]['seconds']:.2f} s" for size in sizes)
        memory = f"{last['peak_mib']:.0f} MiB" if "peak_mib" in last else ""
        per_host_ms = 1000 * last["seconds"] / sizes[-1]
        lines.append(f"| {name} | {times} | {per_host_ms:.0f} ms | {last['own_cpu_s']:.2f} s | {memory} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", default="16,64,128", help="numbers of hosts")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    sizes = [int(each) for each in arguments.sizes.split(",")]
    figures: dict[int, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        write_plugin(scratch)
        specs = {f"n{number + 1}": HostSpec() for number in range(max(sizes))}
        with new_hosts(scratch / "hosts", specs) as hosts:
            for size in sizes:
                names = list(specs)[:size]
                figures[size] = median([measure(hosts, names, scratch) for _ in range(arguments.rounds)])
                print(f"{size} hosts measured", file=sys.stderr, flush=True)
    print(table(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
