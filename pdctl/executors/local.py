"""The local executor: this machine stands for every node of the topology."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from pdctl.executors.base import Executor
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import Completed, UnreachableError
from pdctl.executors.shimmed import ShimmedExecutor
from pdctl.inventory import Inventory, Node, declared
from pdctl.state.paths import run_root, state_dir
from pdctl.topology.model import Cluster


def create(cluster: Cluster, environ: Mapping[str, str]) -> Executor:
    """Run directories lie in the operator's own state directory."""
    root = str(run_root(state_dir(environ)))
    link = NodeLink(name=None, shell=LocalShell(), python=sys.executable, root=root)
    return ShimmedExecutor(links=[link], link_of=lambda _node: link, find_nodes=local_nodes)


def local_nodes(cluster: Cluster) -> Inventory:
    """One node is localhost. Of several, node k is 127.0.1.k, so that each has all its ports to itself."""
    if cluster.nodes == 1:
        here = Node(
            name="localhost",
            address="127.0.0.1",
            num_devices=cluster.devices_per_node,
            python=sys.executable,
        )
        return Inventory(nodes=(here,))
    nodes = declared(cluster).nodes
    return Inventory(
        nodes=tuple(
            # An address that the document states is kept; without one, the name stands in its place.
            replace(node, address=_address(index, len(nodes)), python=sys.executable)
            if node.address == node.name
            else replace(node, python=sys.executable)
            for index, node in enumerate(nodes)
        )
    )


def _address(index: int, num_nodes: int) -> str:
    return "127.0.0.1" if num_nodes == 1 else f"127.0.{1 + index // 256}.{index % 256}"


class LocalShell:
    """Commands on this machine, in sessions of their own: a Ctrl-C meant for pdctl must not reach them."""

    def run(self, argv: Sequence[str], *, stdin: bytes = b"", timeout_s: float) -> Completed:
        try:
            done = subprocess.run(
                argv, input=stdin, capture_output=True, timeout=timeout_s, start_new_session=True, check=False
            )
        except (FileNotFoundError, PermissionError) as error:
            return Completed(code=127, stdout=b"", stderr=str(error).encode())
        except subprocess.TimeoutExpired as error:
            raise UnreachableError(f"no answer within {timeout_s:g} s") from error
        return Completed(code=done.returncode, stdout=done.stdout, stderr=done.stderr)

    def put(self, path: str, content: bytes) -> None:
        target = Path(path)
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = target.with_name(f"{target.name}.{uuid.uuid4().hex}.tmp")
        try:
            with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
                file.write(content)
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def follow(self, argv: Sequence[str], *, stdin: bytes = b"") -> LocalStream:
        return LocalStream(argv, stdin)


class LocalStream:
    """A running command's lines. `close` may come from another thread than the one that reads."""

    def __init__(self, argv: Sequence[str], stdin: bytes, *, close_grace_s: float = 5.0) -> None:
        # Its stderr is ours: a stream has no other place for it.
        self._child = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._close_grace_s = close_grace_s
        self._has_reader = False
        assert self._child.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._child.stdin as pipe:
            pipe.write(stdin)

    def __iter__(self) -> Iterator[bytes]:
        assert self._child.stdout is not None
        self._has_reader = True
        with self._child.stdout as lines:
            for line in lines:
                yield line.rstrip(b"\n")
        self.close()

    def close(self) -> None:
        """TERM, so that a command can end its own children. The reader, if there is one, sees the end."""
        self._child.terminate()
        try:
            self._child.wait(self._close_grace_s)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        if not self._has_reader and self._child.stdout:
            self._child.stdout.close()  # a reader closes it by itself, at the end that it now sees
