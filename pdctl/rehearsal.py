"""A topology rehearsed: its shape on this machine, with the reference engine and a small model. Pure.

Nodes, placement, widths, ports that are stated, time-outs, the staging mode and the router stay, so what is
rehearsed is the plan. What needs the cluster, its devices or the other engine goes, and a diagnostic says
what went. Anything that `--set` says stays: whoever says `--engine` and `--set` means the two together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import replace
from ipaddress import ip_address

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flagtable.shelf import choose_table
from pdctl.inventory import declared
from pdctl.rules.blocks import normal
from pdctl.topology.model import (
    Args,
    ArgValue,
    Cluster,
    Engine,
    Env,
    Host,
    Model,
    Role,
    Router,
    Settings,
    Staging,
    Topology,
    Transfer,
)
from pdctl.topology.overlay import SET_FILE
from pdctl.topology.source import DocumentPath, dotted

ENGINE = "reference"
STAND_IN = "builtin:smollm2-135m-instruct"
SUFFIX = "-rehearsal"
_LONGEST_NAME = 63

# Flags that engines share by name, and that shape what is sent. Sizes of pools and chunks are left out: they
# are chosen for the memory of an accelerator.
_SHARED_FLAGS = frozenset({"page-size", "max-running-requests"})
_BACKENDS = {"tcp": "tcp", "mooncake": "mooncake", "mooncake_tcp": "mooncake", "nixl": "nixl"}
_OWN_ARGS: Args = {"kv-pool-mb": 256}  # of each rank; a node's ranks are all on this machine


def rehearsed(topology: Topology) -> tuple[Topology, tuple[Diagnostic, ...]]:
    """The topology as this machine can run it, and a warning that says what differs."""
    args = _args(topology, ("defaults", "args"), topology.defaults.args)
    env = _typed_env(topology, ("defaults", "env"), topology.defaults.env)
    made = replace(
        topology,
        name=topology.name if _is_typed(topology, "name") else _name(topology.name),
        model=_model(topology),
        engine=Engine(kind=ENGINE),
        cluster=_cluster(topology.cluster),
        transfer=_transfer(topology),
        defaults=Settings(args={**_OWN_ARGS, **args}, env=env),
        prefill=_role(topology, topology.prefill),
        decode=_role(topology, topology.decode),
        router=_router(topology),
        is_rehearsal=True,
    )
    return made, (_difference(topology, made),)


def with_shared_heads(topology: Topology) -> Topology:
    """A rehearsed topology whose model has as many heads, some of them zeros, as its ranks can share.

    Needs the facts of the model; without them, and for a latent cache, it gives the topology as it is.
    """
    facts, args = topology.facts, topology.defaults.args
    if facts.is_mla is not False or facts.num_heads is None or facts.num_kv_heads is None:
        return topology
    widths = [role.parallel.attn_tp for role in topology.roles]
    num = _num_shared_heads(facts.num_kv_heads, facts.num_heads // facts.num_kv_heads, widths)
    if num == facts.num_kv_heads or "pad-kv-heads" in args:
        return topology
    return replace(topology, defaults=replace(topology.defaults, args={**args, "pad-kv-heads": num}))


def _num_shared_heads(num_kv_heads: int, queries_per_head: int, widths: list[int]) -> int:
    """The fewest KV heads, at least the model's own, that each of the widths shares evenly."""
    return next(
        num
        for num in itertools.count(num_kv_heads)
        if all(
            num * queries_per_head % width == 0 and (num % width == 0 or width % num == 0) for width in widths
        )
    )


def _is_typed(topology: Topology, *path: str | int) -> bool:
    """Whether `--set` says it."""
    span = topology.source.value(*path)
    return span is not None and span.file == SET_FILE


def _name(name: str) -> str:
    """Another name than the deployment's own, so that neither is taken for the other."""
    return name[: _LONGEST_NAME - len(SUFFIX)] + SUFFIX


def _model(topology: Topology) -> Model:
    """A small one under the name of the real one, unless the model is such a one or chosen by hand."""
    model = topology.model
    if model.is_builtin:
        return model
    if _is_typed(topology, "model", "path"):
        return Model(path=model.path, served_name=model.served_name)  # the facts stated are of the other
    return Model(path=STAND_IN, served_name=model.name)


def _cluster(cluster: Cluster) -> Cluster:
    """The same nodes, each an address of this machine, and as many devices: they decide who goes where."""
    nodes = declared(cluster).nodes
    return Cluster(nodes=tuple(Host(name=node.name, devices=node.num_devices) for node in nodes))


def _transfer(topology: Topology) -> Transfer:
    """The same way of moving KV where this machine has it, and every request's KV verified."""
    given, path = topology.transfer, ("transfer", "staging")
    backend = given.backend
    if not _is_typed(topology, "transfer", "backend"):
        backend = _BACKENDS.get(backend, "tcp")
    has_queues = backend != "tcp"
    return Transfer(
        backend=backend,
        bootstrap_timeout_s=given.bootstrap_timeout_s,
        waiting_timeout_s=given.waiting_timeout_s,
        heartbeat_interval_s=given.heartbeat_interval_s,
        verify_kv=given.verify_kv or not _is_typed(topology, "transfer", "verify_kv"),
        staging=Staging(
            mode=given.staging.mode,
            buffer_mb=given.staging.buffer_mb if _is_typed(topology, *path, "buffer_mb") else None,
            pool_mb=given.staging.pool_mb if _is_typed(topology, *path, "pool_mb") else None,
        ),
        threads=given.threads if has_queues else None,
        queues=given.queues if has_queues else None,
    )


def _role(topology: Topology, role: Role) -> Role:
    return replace(
        role,
        kv_events_port=None,
        args=_args(topology, (role.name, "args"), role.args),
        env=_typed_env(topology, (role.name, "env"), role.env),
    )


def _args(topology: Topology, path: DocumentPath, args: Args) -> Args:
    names = {key: _name_here(topology, path, key, value) for key, value in args.items()}
    return {name: args[key] for key, name in names.items() if name is not None}


def _name_here(topology: Topology, path: DocumentPath, key: str, value: ArgValue) -> str | None:
    """What the reference engine calls a flag that is kept; None: it is left out."""
    if topology.engine.kind == ENGINE or _is_typed(topology, *path, key):
        return key
    chosen = choose_table(topology.engine.kind, topology.engine.version)
    flag = None if chosen is None else chosen.table.find(normal(key))
    name = normal(key) if flag is None else flag.name
    return name if name in _SHARED_FLAGS and isinstance(value, int) and value > 0 else None


def _typed_env(topology: Topology, path: DocumentPath, env: Env) -> Env:
    return {name: value for name, value in env.items() if _is_typed(topology, *path, name)}


def _router(topology: Topology) -> Router:
    """The same program, without what only its node has: its interpreter, its key, its address."""
    router = topology.router
    is_here = router.host is None or _is_loopback(router.host) or _is_typed(topology, "router", "host")
    return replace(
        router,
        host=router.host if is_here else None,
        python=router.python if _is_typed(topology, "router", "python") else None,
        api_key_env=router.api_key_env if _is_typed(topology, "router", "api_key_env") else None,
    )


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _difference(real: Topology, made: Topology) -> Diagnostic:
    """One warning, as the result is not what the document says."""
    num_ranks = sum(role.instances * role.parallel.num_devices for role in made.roles)
    notes = [f"{num_ranks} engine ranks on this machine, of about half a gigabyte each"]
    if made.model.path != real.model.path:
        notes.append(f"`{made.model.path}` takes the place of `{real.model.path}`")
    if made.transfer.backend != real.transfer.backend:
        notes.append(f"`{made.transfer.backend}` moves the KV in place of `{real.transfer.backend}`")
    for parent, paths in itertools.groupby(_left_out(real, made), key=lambda path: path[:-1]):
        notes.append(f"left out of `{dotted(parent)}`: {', '.join(str(path[-1]) for path in paths)}")
    return Diagnostic(
        code="PD381",
        message=f"this is a rehearsal of `{real.name}`, deployed as `{made.name}`",
        severity=Severity.WARNING,
        notes=tuple(notes),
        help="`--set` says otherwise: what it sets is kept",
    )


def _left_out(real: Topology, made: Topology) -> Iterator[DocumentPath]:
    """What the document says and the rehearsal doesn't, by path."""
    for block, before, after in (
        ("defaults", real.defaults, made.defaults),
        ("prefill", real.prefill, made.prefill),
        ("decode", real.decode, made.decode),
    ):
        args, env = (block, "args"), (block, "env")
        yield from (
            (*args, key) for key in before.args if _name_here(real, args, key, before.args[key]) is None
        )
        yield from ((*env, name) for name in before.env if name not in after.env)
    transfer, router, written = made.transfer, made.router, real.source.keys
    is_absent: Mapping[DocumentPath, bool] = {
        ("transfer", "ib_devices"): True,
        ("transfer", "nvlink"): True,
        ("transfer", "nixl"): True,
        ("transfer", "ascend"): True,
        ("transfer", "heartbeat_max_failures"): True,
        ("transfer", "bootstrap_token_file"): True,
        ("transfer", "staging", "buffer_mb"): transfer.staging.buffer_mb is None,
        ("transfer", "staging", "pool_mb"): transfer.staging.pool_mb is None,
        ("transfer", "threads"): transfer.threads is None,
        ("transfer", "queues"): transfer.queues is None,
        ("prefill", "kv_events_port"): True,
        ("decode", "kv_events_port"): True,
        ("router", "host"): router.host is None,
        ("router", "python"): router.python is None,
        ("router", "api_key_env"): router.api_key_env is None,
    }
    yield from (path for path, absent in is_absent.items() if absent and path in written)
