"""A model's relative path made absolute: processes run in folders of their own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pdctl.topology.model import Topology

RELATIVE_STARTS = ("./", "../", "~/")
STDIN = "-"


def anchored(topology: Topology, file: str) -> Topology:
    """`./m` and `../m` count from the folder of `file`, or from the working directory when they come from
    `--set` or standard input; `~/m` from the operator's home. Other paths, such as `org/name`, stay.
    """
    path = topology.model.path
    if not path.startswith(RELATIVE_STARTS):
        return topology
    span = topology.source.value("model", "path")
    is_typed = file == STDIN or (span is not None and span.file == "--set")
    folder = Path.cwd() if is_typed else Path(file).absolute().parent
    absolute = Path(path).expanduser() if path.startswith("~") else folder / path
    return replace(topology, model=replace(topology.model, path=str(absolute.resolve())))
