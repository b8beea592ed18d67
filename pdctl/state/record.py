"""The operator's own record of deployments: what was wanted last, under `<state>/deployments/<name>/`.

It is a cache for convenience. Nodes are the truth, and losing the record loses nothing that runs.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from pdctl.fields import FieldError, parse_fields
from pdctl.state.files import cannot, read_file, replace_file
from pdctl.state.pending import PendingNode, pending_from_fields

PLAN = "plan.json"
PLAN_BEFORE_DOWN = "plan-before-down.json"  # of a deployment that was taken down
TOPOLOGY = "topology.yaml"
PENDING = "pending.json"  # nodes on which a `down` is not finished
AUDIT = "audit.jsonl"
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


def is_deployment_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRecord:
    """`plan` and `topology` are kept as they were given; whoever wrote them reads them."""

    name: str
    plan: bytes
    topology: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordStore:
    """All records of one operator. Files that can't be read or written are a `DiagnosticError` (PD506)."""

    directory: Path

    def names(self) -> tuple[str, ...]:
        """Deployments that were brought up and not taken down, sorted; other folders are none of ours."""
        return tuple(name for name in self._folders() if (self.directory / name / PLAN).is_file())

    def save(self, record: DeploymentRecord) -> None:
        folder = self.folder(record.name)
        # The plan comes last: a record counts once its plan is there, so then it is complete.
        if record.topology is not None:
            replace_file(folder / TOPOLOGY, record.topology)
        replace_file(folder / PLAN, record.plan)

    def retire(self, name: str) -> None:
        """After a `down`: the record can still be loaded, but its name is listed no more."""
        folder = self.folder(name)
        try:
            (folder / PLAN).replace(folder / PLAN_BEFORE_DOWN)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise cannot("rename", folder / PLAN, error) from error

    def note_pending(self, name: str, nodes: tuple[PendingNode, ...]) -> None:
        """Remember nodes that a `down` could not reach; none: all of them are down."""
        path = self.folder(name) / PENDING
        if nodes:
            replace_file(path, json.dumps({"nodes": [node.to_json() for node in nodes]}).encode())
            return
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise cannot("remove", path, error) from error

    def pending(self, name: str) -> tuple[PendingNode, ...]:
        content = read_file(self.folder(name) / PENDING)
        try:
            return (
                ()
                if content is None
                else pending_from_fields(parse_fields(PENDING, content).objects("nodes"))
            )
        except FieldError:  # damaged: the nodes know it too
            return ()

    def audited_names(self) -> tuple[str, ...]:
        """Deployments with a history, those that were taken down too."""
        return tuple(name for name in self._folders() if self.audit_path(name).is_file())

    def load(self, name: str) -> DeploymentRecord | None:
        folder = self.folder(name)
        plan = read_file(folder / PLAN) or read_file(folder / PLAN_BEFORE_DOWN)
        if plan is None:
            return None
        return DeploymentRecord(name=name, plan=plan, topology=read_file(folder / TOPOLOGY))

    def remove(self, name: str) -> None:
        """Also its audit log; no fault when there is none."""
        folder = self.folder(name)
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            pass
        except OSError as error:
            raise cannot("remove", folder, error) from error

    def audit_path(self, name: str) -> Path:
        return self.folder(name) / AUDIT

    def folder(self, name: str) -> Path:
        """Raises `ValueError` for a text that is no deployment name, before it can lead elsewhere."""
        if not is_deployment_name(name):
            raise ValueError(f"`{name}` is not a deployment name")
        return self.directory / name

    def _folders(self) -> tuple[str, ...]:
        try:
            found = sorted(path.name for path in self.directory.iterdir() if _NAME.fullmatch(path.name))
        except (FileNotFoundError, NotADirectoryError):
            return ()
        except OSError as error:
            raise cannot("read", self.directory, error) from error
        return tuple(found)
