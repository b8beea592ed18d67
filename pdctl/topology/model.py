"""The topology document as frozen dataclasses; `schemas/topology.schema.json` describes the same fields.

`None` means that the document doesn't say; the program that reads the field decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdctl.models.facts import ModelFacts
from pdctl.topology.source import SourceMap

ArgValue = str | int | float | bool | None | tuple[str | int | float, ...]
Args = Mapping[str, ArgValue]
Env = Mapping[str, str]
RoleName = Literal["prefill", "decode"]
BUILTIN_PREFIX = "builtin:"
ROLE_NAMES: tuple[RoleName, ...] = ("prefill", "decode")


def _no_args() -> Args:
    return {}


def _no_env() -> Env:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    path: str  # Hugging Face folder or name, GGUF file, or `builtin:NAME`
    served_name: str | None = None  # the name in the API; None: `path`, without `builtin:`

    @property
    def is_builtin(self) -> bool:
        return self.path.startswith(BUILTIN_PREFIX)

    @property
    def name(self) -> str:
        return self.served_name or self.path.removeprefix(BUILTIN_PREFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    kind: str
    version: str | None = None
    python: str | None = None  # interpreter on the nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine of the cluster, where the document names them."""

    name: str
    address: str | None = None  # how its peers reach it; None: its name
    devices: int | None = None  # None: `cluster.devices_per_node`


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    executor: str = "local"
    nodes: int | tuple[Host, ...] = 1
    devices_per_node: int = 0  # accelerators; 0 means that engines run on CPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    backend: str = "tcp"
    bootstrap_timeout_s: float | None = None
    waiting_timeout_s: float | None = None
    heartbeat_interval_s: float | None = None
    verify_kv: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Widths of one instance; `attn_tp = tp / attn_dp`."""

    tp: int = 1
    attn_dp: int = 1
    ep: int = 1
    pp: int = 1

    @property
    def num_devices(self) -> int:
        return self.tp * self.pp


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Flags and variables passed on to a program."""

    args: Args = field(default_factory=_no_args)
    env: Env = field(default_factory=_no_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """One fleet: every instance of it is alike."""

    name: RoleName
    instances: int = 1
    nodes: int | None = None  # per instance; None: one, shared with other instances
    devices: int | None = None  # per instance; None: what `parallel` needs
    parallel: Parallel = field(default_factory=Parallel)
    on: tuple[str, ...] = ()  # node names, in the order to fill them; empty: any
    port: int | None = None  # HTTP port of the first instance on a node
    bootstrap_port: int | None = None  # prefill only, likewise
    args: Args = field(default_factory=_no_args)
    env: Env = field(default_factory=_no_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    kind: str = "mini_lb"
    policy: str | None = None
    prefill_policy: str | None = None
    decode_policy: str | None = None
    host: str | None = None  # address to listen on; None: the node's own
    port: int | None = None
    on: str | None = None  # node name; None: the first node
    python: str | None = None
    args: Args = field(default_factory=_no_args)
    env: Env = field(default_factory=_no_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    ready_deadline_s: float = 600.0  # from a process's start until it serves
    stop_grace_s: float = 10.0  # between TERM and KILL
    canary: bool = True  # `up` ends with one real generation through the router


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One deployment, as its author wrote it."""

    schema: str
    name: str
    model: Model
    engine: Engine
    cluster: Cluster = field(default_factory=Cluster)
    transfer: Transfer = field(default_factory=Transfer)
    defaults: Settings = field(default_factory=Settings)
    prefill: Role
    decode: Role
    router: Router = field(default_factory=Router)
    health: Health = field(default_factory=Health)
    source: SourceMap = field(default_factory=SourceMap, compare=False, repr=False)
    # What is known of the model; planning looks it up (`pdctl/models/resolve.py`), the document may state it.
    facts: ModelFacts = field(default_factory=ModelFacts, compare=False, repr=False)

    @property
    def roles(self) -> tuple[Role, Role]:
        return (self.prefill, self.decode)
