"""An executor in one file, found by its entry point: hosts that are all this machine, each in a folder of its
own, and a line in `calls.txt` for each command that one of them is given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from pdctl.executors.base import Executor
from pdctl.executors.link import NodeLink
from pdctl.executors.local import LocalShell, LocalStream, local_nodes
from pdctl.executors.shell import Completed
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.inventory import declared
from pdctl.topology.model import Cluster


class CountedShell:
    def __init__(self, name: str, calls: Path) -> None:
        self._name = name
        self._calls = calls
        self._shell = LocalShell()

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        self._count(argv, stdin)
        return self._shell.run(argv, stdin=stdin, timeout_s=timeout_s)

    def put(self, path: str, content: bytes) -> None:
        self._write("put")
        self._shell.put(path, content)

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> LocalStream:
        self._count(argv, stdin)
        return self._shell.follow(argv, stdin=stdin)

    def _count(self, argv: Sequence[str], stdin: bytes) -> None:
        verb = argv[4]  # behind the interpreter, its two options, and the shim
        calls = json.loads(stdin or b"{}").get("calls", ()) if verb == "do" else ()
        self._write("+".join(call["verb"] for call in calls) or verb)

    def _write(self, what: str) -> None:
        with self._calls.open("a") as file:  # a short line is one write, which threads don't mix
            file.write(f"{self._name} {what}\n")


def create(cluster: Cluster, environ: Mapping[str, str]) -> Executor:
    folder = Path(environ["PDCTL_STATE_DIR"])
    folder.mkdir(exist_ok=True)
    links = {
        node.name: NodeLink(
            name=node.name,
            shell=CountedShell(node.name, folder / "calls.txt"),
            python=sys.executable,
            root=str(folder / node.name),
        )
        for node in declared(cluster).nodes
    }
    # Node k is 127.0.1.k, which a document may not say of hosts.
    return ShimmedExecutor(links=tuple(links.values()), link_of=links.get, find_nodes=local_nodes)
