"""What a node answered, typed. The shim's side of the form is `runtime/shim/survey.py`."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.executors.calls import PortAnswer

SHARED_MEMORY_PATH = "/dev/shm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    path: str
    free_bytes: int
    total_bytes: int
    problem: str | None  # `can't be written to`


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None is unlimited."""

    memlock_bytes: int | None
    may_lock_all: bool  # by capability, whatever the limit
    open_files: int | None
    open_files_hard: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    name: str
    is_found: bool
    version: str | None  # None: no installer left a name


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramFacts:
    version: str | None  # of the interpreter
    problem: str | None  # why it can't be asked
    packages: tuple[Package, ...]
    is_late: bool = False  # the problem: no answer in time, so it may be slow only


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentHere:
    """Ids of processes on this node; `holder` works on the deployment right now."""

    name: str
    alive: tuple[str, ...]
    orphaned: tuple[str, ...]
    leftover: tuple[str, ...]
    holder: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    index: int
    uuid: str
    name: str
    driver: str
    total_bytes: int | None
    used_bytes: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    uuid: str  # of the device
    pid: int
    name: str
    used_bytes: int | None
    process: str | None  # `deployment/process_id` when pdctl started it


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    problem: str | None
    gpus: tuple[Gpu, ...]
    processes: tuple[GpuProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaPort:
    number: int
    state: str  # `ACTIVE`
    link_layer: str  # `InfiniBand` or `Ethernet`
    has_gid: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    name: str
    ports: tuple[RdmaPort, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFiles:
    path: str
    problem: str | None
    num_files: int
    num_bytes: int
    fingerprint: str  # of names and sizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How far the node's clock is ahead of this machine's: somewhere in between."""

    least_s: float
    most_s: float

    @property
    def middle_s(self) -> float:
        return (self.least_s + self.most_s) / 2

    @property
    def uncertainty_s(self) -> float:
        return (self.most_s - self.least_s) / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """Parts that were not asked for are empty, or None."""

    clock: Clock
    machine: str  # the same for nodes that share a kernel and its network
    python: str  # version of the shim's interpreter
    limits: Limits
    folders: tuple[Folder, ...]
    programs: tuple[ProgramFacts, ...]  # in the order of the needs
    ports: tuple[PortAnswer, ...]  # in the order of the needs
    deployments: tuple[DeploymentHere, ...]
    devices: Devices | None
    rdma: tuple[RdmaDevice, ...]
    gpu_direct: str | None  # what reaches device memory: `nvidia_peermem`, `dma-buf`
    models: tuple[ModelFiles, ...]  # in the order of the needs
