"""Nodes that failed deployments, with the evidence: the next `up` asks for others, until they are forgotten.

Slurm itself keeps a node schedulable whose network errs, and chooses it again: two jobs of ten nodes each
failed alike on the same peer (marin-community/marin issue 7869).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.state.files import cannot, read_file, replace_file
from pdctl.state.paths import state_dir
from pdctl.topology.nearest import suggest
from pdctl.topology.slurm import Slurm

KEPT_S = 86_400.0  # a day at first, one more for each time that a node fails again
MAX_KEPT_S = 7 * KEPT_S
_FOLDER = "bad-nodes"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


@dataclass(frozen=True, slots=True, kw_only=True)
class BadNode:
    """Times are seconds since the epoch."""

    name: str
    why: str  # the evidence, in a few words
    seen_at: float  # the last time
    expires_at: float
    num_times: int = 1
    deployment: str | None = None  # that it failed last; None: an operator says so
    job_id: int | None = None


class BadNodes:
    """A file for each node beside the deployments' folders, so that all who write may do so at once."""

    def __init__(self, run_dir: Path) -> None:
        self._folder = run_dir / _FOLDER

    def all(self, now: float) -> tuple[BadNode, ...]:
        """Those that aren't forgotten yet, by name. A damaged record still says that its node is bad."""
        found = [self._load(name, now) for name in self._names()]
        return tuple(node for node in found if node is not None and node.expires_at > now)

    def names(self, now: float) -> tuple[str, ...]:
        return tuple(node.name for node in self.all(now))

    def remember(
        self,
        name: str,
        why: str,
        *,
        now: float,
        deployment: str | None = None,
        job_id: int | None = None,
        kept_s: float | None = None,
    ) -> BadNode:
        """Put a node on the list. One that fails again is kept longer; the same job counts once."""
        if _NAME.fullmatch(name) is None:
            raise DiagnosticError.one(
                "PD537", f"`{name}` is no name of a node", help="`sinfo -N` lists the nodes"
            )
        before = self._load(name, now)
        is_known = before is not None and job_id is not None and before.job_id == job_id
        num_times = 1 if before is None else before.num_times + (0 if is_known else 1)
        node = BadNode(
            name=name,
            why=why,
            seen_at=now,
            expires_at=now + (min(num_times * KEPT_S, MAX_KEPT_S) if kept_s is None else kept_s),
            num_times=num_times,
            deployment=deployment,
            job_id=job_id,
        )
        replace_file(self._file(name), json.dumps(asdict(node)).encode())
        return node

    def forget(self, names: Iterable[str]) -> None:
        """Take nodes off the list: all, or none where one isn't on it."""
        wanted, known = tuple(dict.fromkeys(names)), self._names()
        faults = [
            Diagnostic(
                code="PD537",
                message=f"`{name}` is not remembered as bad",
                help=suggest(name, known) or "`pdctl nodes list` shows those that are",
            )
            for name in wanted
            if name not in known
        ]
        if faults:
            raise DiagnosticError(faults)
        for name in wanted:
            self._file(name).unlink(missing_ok=True)

    def _names(self) -> tuple[str, ...]:
        try:
            files = sorted(self._folder.glob("[A-Za-z0-9]*.json"))
        except OSError as error:
            raise cannot("read", self._folder, error) from error
        return tuple(file.stem for file in files if _NAME.fullmatch(file.stem))

    def _load(self, name: str, now: float) -> BadNode | None:
        content = read_file(self._file(name))
        if content is None:
            return None
        try:
            return replace(_node_from(parse_fields(f"the record of node `{name}`", content)), name=name)
        except FieldError as error:
            return BadNode(name=name, why=str(error), seen_at=now, expires_at=now + KEPT_S)

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


def bad_nodes_of(slurm: Slurm | None, environ: Mapping[str, str]) -> BadNodes:
    """The list beside the deployments that live in the run directory of `slurm`."""
    run_dir = None if slurm is None else slurm.run_dir
    return BadNodes(
        state_dir(environ) / "slurm" if run_dir is None else Path(run_dir).expanduser().absolute()
    )


def _node_from(fields: Fields) -> BadNode:
    return BadNode(
        name=fields.text("name"),
        why=fields.text("why"),
        seen_at=fields.number("seen_at"),
        expires_at=fields.number("expires_at"),
        num_times=fields.integer("num_times"),
        deployment=fields.optional_text("deployment"),
        job_id=fields.optional_integer("job_id"),
    )
