"""Which ports an instance of SGLang listens on: those it is told, and those that it takes beside them.

With attention data parallelism, the processes of an instance talk over TCP at fixed distances from one port
(`server_args.py`, `PortArgs.init_new`): behind the HTTP port on one node, behind the rendezvous on several.
Two instances on a node whose HTTP ports are neighbours would collide there, with nothing in either command
line to show why. Random ports are left: a KV control socket per rank (49152 up) and Mooncake's RPC (15000 to
17000).
"""

from __future__ import annotations

from pdctl.engines.sglang.kv_events import kv_event_needs
from pdctl.engines.sglang.transfer import ASCEND_STORE, store_place
from pdctl.plan.ports import (
    ASCEND_STORE_BASE,
    BOOTSTRAP_BASE,
    DECODE_HTTP_BASE,
    DIST_INIT_BASE,
    NCCL_BASE,
    PREFILL_HTTP_BASE,
    TCP_STORE_BASE,
    Companion,
    PortNeed,
)
from pdctl.topology.model import Role, Topology, Transfer

# Wider than the family behind an HTTP port (13 and 233 to 239), so that families of neighbours never meet:
# modulo 300, prefill's lie at 0, 13 and 233 to 239, decode's 100 behind them.
HTTP_STRIDE = 300
DIST_INIT_STRIDE = 20

_HANDSHAKE_DELTA = 13  # DP_ATTENTION_HANDSHAKE_PORT_DELTA: ranks learn each other's ports
_RENDEZVOUS_DELTA = 233  # ZMQ_TCP_PORT_DELTA: stands for a rendezvous that wasn't given
TCP_STORE = "tcp-store"  # where ranks meet whose experts are reached over NIXL
_BEHIND_RENDEZVOUS = ("tokenizer", "detokenizer", "rpc", "scheduler-metrics", "scheduler", "loads")


def port_needs(role: Role, topology: Topology) -> tuple[PortNeed, ...]:
    """HTTP first; then the bootstrap server of prefill, then where the ranks find each other."""
    bootstrap = (_bootstrap(role), *_ascend_store(topology.transfer)) if role.name == "prefill" else ()
    meeting = (*_rendezvous(role), *_tcp_store(role, topology))
    return (_http(role), *bootstrap, *kv_event_needs(role, topology), *meeting)


def is_spread(role: Role) -> bool:
    """Whether an instance runs on several nodes, as one process on each."""
    return (role.nodes or 1) > 1


def _http(role: Role) -> PortNeed:
    base = PREFILL_HTTP_BASE if role.name == "prefill" else DECODE_HTTP_BASE
    has_family = role.parallel.attn_dp > 1 and not is_spread(role)
    return PortNeed(
        name="http",
        base=role.port or base,
        stride=HTTP_STRIDE,
        requested=role.port is not None,
        path=(role.name, "port"),
        companions=(
            (
                Companion(name="handshake", offset=_HANDSHAKE_DELTA),
                Companion(name="rendezvous", offset=_RENDEZVOUS_DELTA),
                *_behind(_RENDEZVOUS_DELTA),
            )
            if has_family
            else ()
        ),
        # Followers answer /health on it too: with 200, always, so nothing may ask them.
        on_every_node=True,
    )


def _bootstrap(role: Role) -> PortNeed:
    return PortNeed(
        name="bootstrap",
        base=role.bootstrap_port or BOOTSTRAP_BASE,
        requested=role.bootstrap_port is not None,
        path=(role.name, "bootstrap_port"),
    )


def _ascend_store(transfer: Transfer) -> tuple[PortNeed, ...]:
    """Where all ranks of an Ascend deployment meet; the first prefill instance opens it."""
    ascend = transfer.ascend
    if transfer.backend != "ascend" or ascend.with_mooncake:
        return ()
    if ascend.store_url is None:
        return (PortNeed(name=ASCEND_STORE, base=ASCEND_STORE_BASE, only_first=True),)
    return (
        PortNeed(
            name=ASCEND_STORE,
            base=store_place(ascend.store_url)[1],
            stride=0,
            requested=True,
            path=("transfer", "ascend", "store_url"),
            only_first=True,
        ),
    )


def _tcp_store(role: Role, topology: Topology) -> tuple[PortNeed, ...]:
    """`_create_global_tcp_store` of srt/distributed/parallel_state.py; rank 0 opens it, from 0.5.12 on.

    A second instance on the node finds the default port taken, and only logs that it has no store.
    """
    flag = "moe-a2a-backend"
    has_store = role.args.get(flag, topology.defaults.args.get(flag)) == "nixl"
    return (PortNeed(name=TCP_STORE, base=TCP_STORE_BASE),) if has_store else ()


def _rendezvous(role: Role) -> tuple[PortNeed, ...]:
    if is_spread(role):
        family = (*_behind(0), Companion(name="handshake", offset=_HANDSHAKE_DELTA))
        return (
            PortNeed(
                name="dist-init",
                base=DIST_INIT_BASE,
                stride=DIST_INIT_STRIDE,
                companions=family if role.parallel.attn_dp > 1 else (),
            ),
        )
    if role.parallel.dp > 1:
        # Each copy needs a port of its own and there is one flag: SGLang has to draw them
        # (`managers/data_parallel_controller.py`, `launch_dp_schedulers`).
        return ()
    return (PortNeed(name="nccl", base=NCCL_BASE),)


def _behind(rendezvous: int) -> tuple[Companion, ...]:
    return tuple(
        Companion(name=name, offset=rendezvous + 1 + index) for index, name in enumerate(_BEHIND_RENDEZVOUS)
    )
