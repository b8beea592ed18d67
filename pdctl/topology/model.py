"""The topology document as frozen dataclasses; `schemas/topology.schema.json` describes the same fields.

`None` means that the document doesn't say; the program that reads the field decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pdctl.models.facts import ModelFacts
from pdctl.topology.slurm import Slurm
from pdctl.topology.source import SourceMap


@dataclass(frozen=True, slots=True)
class JsonArg:
    """A mapping of the document as a flag gets it: compact JSON."""

    text: str

    def __str__(self) -> str:
        return self.text


ArgWord = str | int | float | JsonArg
ArgValue = ArgWord | bool | None | tuple[ArgWord, ...]
Args = Mapping[str, ArgValue]
Env = Mapping[str, str]
RoleName = Literal["prefill", "decode"]
Attention = Literal["mha", "gqa", "mla", "hybrid", "sliding", "sparse"]
Nvlink = Literal["off", "intra_node", "mnnvl"]
StagingMode = Literal["auto", "on", "off"]
AscendProtocol = Literal["sdma", "device_rdma"]
SshTransport = Literal["fabric", "openssh"]
AUTO = "auto"  # as an address or interface: the node itself tells
BUILTIN_PREFIX = "builtin:"
ROLE_NAMES: tuple[RoleName, ...] = ("prefill", "decode")


def _no_args() -> Args:
    return {}


def _no_env() -> Env:
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """What to serve. The facts are those that the document states; None: to be found out elsewhere."""

    path: str  # Hugging Face folder or name, GGUF file, or `builtin:NAME`
    served_name: str | None = None  # the name in the API; None: `path`, without `builtin:`
    attention: Attention | None = None
    layers: int | None = None
    kv_heads: int | None = None
    head_dim: int | None = None
    experts: int | None = None  # routed ones of a layer
    context_length: int | None = None  # tokens that the model was made for

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
class Ssh:
    """How executor `ssh` logs in to the nodes. None: as the operator's SSH configuration has it.

    Never a secret: keys are files or in an agent. `~` is the home of whoever reads it.
    """

    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None  # `user@host:port,…`, the nearest first; `none` goes straight
    config: str | None = None  # file; None: `~/.ssh/config`
    known_hosts: str | None = None  # file
    transport: SshTransport = "fabric"
    connect_timeout_s: float = 10.0  # of each step of connecting
    command_timeout_s: float | None = None  # what every call is given at least
    keepalive_s: float = 5.0
    fan_out: int = 32  # nodes that are worked on at the same time
    python: str = "python3"  # on the nodes, runs the shim
    state_dir: str | None = None  # on the nodes; None: the node's own default


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSsh:
    """What differs from `Ssh` for one host."""

    host: str | None = None  # name, alias or address to connect to; None: the node's address
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    proxy_jump: str | None = None
    python: str | None = None
    state_dir: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """One machine of the cluster, where the document names them."""

    name: str
    address: str | None = None  # how its peers reach it; None: its name; `AUTO`
    devices: int | None = None  # None: `cluster.devices_per_node`
    interface: str | None = None  # network interface for NCCL and Gloo; None: they choose; `AUTO`
    python: str | None = None  # the engine's interpreter there; None: `engine.python`
    model_path: str | None = None  # None: `model.path`
    ssh: HostSsh = field(default_factory=HostSsh)
    env: Env = field(default_factory=_no_env)  # of every engine process there, over that of its role


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    executor: str = "local"
    nodes: int | tuple[Host, ...] = 1
    ssh: Ssh | None = None
    slurm: Slurm | None = None
    devices_per_node: int = 0  # accelerators; 0 means that engines run on CPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class IbDevices:
    """Names of RDMA devices in the one form that the document chose; the other two are empty."""

    shared: tuple[str, ...] = ()  # for every accelerator of every node
    by_device: Mapping[int, tuple[str, ...]] = field(default_factory=dict[int, tuple[str, ...]])
    per_node: Mapping[str, IbDevices] = field(default_factory=dict[str, "IbDevices"])

    def on(self, node: str) -> IbDevices | None:
        """Those of one node; None where `per_node` leaves it out."""
        return self.per_node.get(node) if self.per_node else self


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """Buffers that KV cache is collected in where prefill and decode shard attention differently."""

    mode: StagingMode = "auto"
    buffer_mb: int | None = None  # each send buffer of a prefill rank
    pool_mb: int | None = None  # receive pool of a decode rank


@dataclass(frozen=True, slots=True, kw_only=True)
class Nixl:
    plugin: str | None = None  # None: UCX
    params: Mapping[str, str] = field(default_factory=_no_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ascend:
    store_url: str | None = None  # None: a port on the node of the first prefill instance
    protocol: AscendProtocol | None = None  # None: sdma
    with_mooncake: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    backend: str = "tcp"
    bootstrap_timeout_s: float | None = None
    waiting_timeout_s: float | None = None
    heartbeat_interval_s: float | None = None
    heartbeat_max_failures: int | None = None
    verify_kv: bool = False
    bootstrap_token_file: str | None = None  # on the nodes
    ib_devices: IbDevices | None = None  # None: the backend finds them
    nvlink: Nvlink = "off"
    staging: Staging = field(default_factory=Staging)
    threads: int | None = None  # of a prefill rank; None: the engine's choice
    queues: int | None = None
    nixl: Nixl = field(default_factory=Nixl)
    ascend: Ascend = field(default_factory=Ascend)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallel:
    """Widths of one instance."""

    tp: int = 1
    attn_dp: int = 1
    ep: int = 1
    pp: int = 1
    attn_cp: int = 1  # ranks that share the attention of one prompt, inside tp
    dp: int = 1  # whole copies behind one HTTP endpoint

    @property
    def num_devices(self) -> int:
        return self.tp * self.pp * self.dp

    @property
    def attn_tp(self) -> int:
        """How many ways the heads of attention are sharded; 1 at least, where widths don't divide."""
        return max(1, self.tp // (self.attn_dp * self.attn_cp))


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
    device_order: tuple[int, ...] = ()  # indices on a node, in the order to take them; empty: all, from 0
    devices_of: RoleName | None = None  # share the devices of that role's instance of the same number
    port: int | None = None  # HTTP port of the first instance on a node
    bootstrap_port: int | None = None  # prefill only, likewise
    kv_events_port: int | None = None  # likewise; None: no events are published
    args: Args = field(default_factory=_no_args)
    env: Env = field(default_factory=_no_env)


@dataclass(frozen=True, slots=True, kw_only=True)
class Retries:
    attempts: int | None = None  # in all, the first one included
    initial_backoff_ms: int | None = None
    max_backoff_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Breaker:
    """When an instance that keeps failing gets no requests for a while."""

    enabled: bool = True
    failures: int | None = None  # within the window, to open it
    successes: int | None = None  # in a row, to close it
    open_s: int | None = None
    window_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    max_concurrent: int | None = None  # None: no limit, and nothing waits
    size: int | None = None
    timeout_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthCheck:
    """How the router looks after the instances."""

    endpoint: str | None = None
    interval_s: int | None = None
    timeout_s: int | None = None
    failures: int | None = None  # in a row
    successes: int | None = None  # in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    kind: str = "mini_lb"
    version: str | None = None
    policy: str | None = None
    prefill_policy: str | None = None
    decode_policy: str | None = None
    host: str | None = None  # address to listen on; None: the node's own
    port: int | None = None
    on: str | None = None  # node name; None: the first node
    python: str | None = None
    metrics_port: int | None = None
    api_key_env: str | None = None  # name of the variable on its node that holds the key
    request_timeout_s: int | None = None
    retries: Retries = field(default_factory=Retries)
    breaker: Breaker = field(default_factory=Breaker)
    queue: Queue = field(default_factory=Queue)
    health_check: HealthCheck = field(default_factory=HealthCheck)
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
    # Whether this machine stands for every node of the document (`pdctl/rehearsal.py`).
    is_rehearsal: bool = field(default=False, compare=False, repr=False)

    @property
    def roles(self) -> tuple[Role, Role]:
        return (self.prefill, self.decode)
