"""The launch plan: every process that should run, with argv, environment and ports. Pure values.

Its JSON form is a contract: `schemas/plan.schema.json`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pdctl.topology.model import HostSsh, Ssh
from pdctl.topology.slurm import Slurm

PLAN_FORMAT = 1


class RoleKind(StrEnum):
    PREFILL = "prefill"
    DECODE = "decode"
    ROUTER = "router"


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """argv and the variables laid over the node's own environment."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """An HTTP request that answers 200 once a process serves."""

    host: str
    port: int
    path: str
    deadline_s: float  # from the process's start
    timeout_s: float = 5.0  # of one request

    @property
    def url(self) -> str:
        return self.sibling(self.path)

    def sibling(self, path: str) -> str:
        """The URL of another path of the same server."""
        return f"http://{Endpoint(host=self.host, port=self.port)}{path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortClaim:
    """One TCP port that a process listens on."""

    name: str  # `http`, `bootstrap`, …
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNode:
    name: str
    address: str
    ssh: HostSsh = field(default_factory=HostSsh)  # how the operator reaches it, with executor `ssh`


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """One serving replica of a role: one HTTP endpoint, the processes that live and die together."""

    id: str  # `decode-1`
    role: RoleKind
    process_ids: tuple[str, ...]
    http: Endpoint
    bootstrap: Endpoint | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """One OS process. Its digest covers what forces a restart: node, devices, argv, environment."""

    id: str  # `decode-1.0`: instance and node rank
    instance_id: str
    role: RoleKind
    node: str
    node_rank: int
    device_indices: tuple[int, ...]
    argv: tuple[str, ...]
    env: Mapping[str, str]
    listen: str  # the address that its ports are bound to
    ports: tuple[PortClaim, ...]
    after: tuple[str, ...]  # processes that must be ready before this one starts
    ready: Probe | None  # None: running is enough, as for followers of a multi-node instance
    grace_s: float
    prepare: tuple[
        str, ...
    ] = ()  # argv that must succeed on the node before the start, such as a model fetch
    requests_metric: str | None = None  # Prometheus counter of requests, on the HTTP port's /metrics
    digest: str = ""

    def port(self, name: str) -> int | None:
        return next((claim.port for claim in self.ports if claim.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    name: str
    executor: str
    topology_digest: str
    nodes: tuple[PlanNode, ...]
    instances: tuple[Instance, ...]
    processes: tuple[ProcessSpec, ...]  # in start order
    served_model: str
    canary: bool
    digest: str
    # How the nodes are reached again, by whoever has this plan. In no digest: a process is the same process
    # whichever way its node is logged in to.
    ssh: Ssh | None = None
    slurm: Slurm | None = None  # likewise: how the job is found again
    format: int = PLAN_FORMAT

    def process(self, process_id: str) -> ProcessSpec | None:
        return next((each for each in self.processes if each.id == process_id), None)

    @property
    def router(self) -> Instance:
        return next(each for each in self.instances if each.role is RoleKind.ROUTER)
