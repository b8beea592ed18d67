"""The SGLang plug-in: argv and environment of one process, its ports and its probe."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.engines.sglang.devices import ib_device_flag, visible_devices
from pdctl.engines.sglang.environment import process_env
from pdctl.engines.sglang.kv_events import kv_event_flags
from pdctl.engines.sglang.ports import TCP_STORE, is_spread, port_needs
from pdctl.engines.sglang.release import Release
from pdctl.engines.sglang.rules import RULES
from pdctl.engines.sglang.transfer import backend_flag, default_store, reads_ib_devices
from pdctl.flags import canonical, merged, to_argv
from pdctl.flagtable.shelf import choose_table
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import PortNeed
from pdctl.program import Program, Rule
from pdctl.topology.model import Env, Role, Router, Topology

# /health makes the server generate a token, which waits for what is computed just then, up to
# HEALTH_CHECK_TIMEOUT, 20 s (`entrypoints/http_server.py`).
PROBE_TIMEOUT_S = 25.0


@dataclass(frozen=True, slots=True)
class SglangEngine:
    owned_flags = frozenset(
        {
            "config",  # a file of more flags, which may be any of the others here
            "model-path",
            "model",
            "served-model-name",
            "host",
            "port",
            "disaggregation-mode",
            "disaggregation-transfer-backend",
            "disaggregation-bootstrap-port",
            "disaggregation-ib-device",
            "disaggregation-enable-kv-checksum",
            "tp-size",
            "tensor-parallel-size",
            "tp",
            "pp-size",
            "pipeline-parallel-size",
            "ep-size",
            "expert-parallel-size",
            "ep",
            "dp-size",
            "data-parallel-size",
            "dp",
            "attn-dp-size",
            "attention-data-parallel-size",
            "enable-dp-attention",
            "attn-cp-size",
            "attention-context-parallel-size",
            "dist-init-addr",
            "nccl-init-addr",
            "nnodes",
            "node-rank",
            "nccl-port",
            "base-gpu-id",
            "gpu-id-step",
        }
    )
    # Told only with `enable-metrics`. What is served without it counts no requests: /get_load and /v1/loads
    # have those of this moment; /server_info asks the scheduler, and has all arguments, the API key too.
    requests_metric = "sglang:num_requests_total"

    def port_needs(self, part: Role | Router, topology: Topology) -> tuple[PortNeed, ...]:
        if not isinstance(part, Role):
            raise TypeError(f"`{part.kind}` is no role of an engine")
        return port_needs(part, topology)

    def command(self, slot: Slot, layout: Layout) -> Command:
        """Every rank has the same words but for its address, its rank and its RDMA devices."""
        topology = layout.topology
        role = topology.prefill if slot.role == "prefill" else topology.decode
        release = Release(version=topology.engine.version)
        leader = layout.leader(slot)
        argv = [layout.engine_python(slot.node), "-m", "sglang.launch_server"]
        argv += ["--model-path", layout.model_path(slot.node)]
        argv += _if_stated("--served-model-name", topology.model.served_name)
        argv += ["--host", slot.node.listen_address, "--port", str(leader.endpoint("http").port)]
        argv += _width_flags(role, release)
        argv += _rendezvous_flags(role, slot, leader)
        argv += ["--disaggregation-mode", role.name]
        argv += ["--disaggregation-transfer-backend", backend_flag(topology.transfer.backend, release)]
        if role.name == "prefill":
            # On every rank: a follower registers with the bootstrap server by its own copy of the flag.
            argv += ["--disaggregation-bootstrap-port", str(leader.endpoint("bootstrap").port)]
        argv += _ib_device_flags(topology, slot, release)
        argv += kv_event_flags(role, leader)
        if topology.transfer.verify_kv and release.has_kv_checksum:
            argv += ["--disaggregation-enable-kv-checksum"]
        argv += _passed_on(topology, role, release)
        env = process_env(
            topology,
            role,
            slot.node,
            placed={**visible_devices(topology, role, slot), **_tcp_store(leader)},
            default_store=default_store(layout),
        )
        return Command(argv=tuple(argv), env=env)

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        if not slot.is_leader:
            return None  # a follower's own server answers 200 from its start (`entrypoints/engine.py`)
        http = slot.endpoint("http")
        return Probe(
            host=http.host,
            port=http.port,
            path="/health",
            deadline_s=layout.topology.health.ready_deadline_s,
            timeout_s=PROBE_TIMEOUT_S,
        )

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        return ()

    def rules(self) -> tuple[Rule, ...]:
        from pdctl.rules import sglang  # they build on modules of this package

        return (*RULES, *sglang.RULES)


def _width_flags(role: Role, release: Release) -> list[str]:
    parallel = role.parallel
    widths = {"--tp-size": parallel.tp, "--pp-size": parallel.pp, "--ep-size": parallel.ep}
    if release.has_attn_dp_flag or parallel.attn_dp == 1:
        widths |= {"--attn-dp-size": parallel.attn_dp, "--dp-size": parallel.dp}
    else:
        widths |= {"--dp-size": parallel.attn_dp}
    widths |= {"--attn-cp-size": parallel.attn_cp}
    flags = [word for flag, width in widths.items() if width != 1 for word in (flag, str(width))]
    is_old_spelling = parallel.attn_dp != 1 and not release.has_attn_dp_flag
    return [*flags, "--enable-dp-attention"] if is_old_spelling else flags


def _rendezvous_flags(role: Role, slot: Slot, leader: Slot) -> list[str]:
    """How the ranks of an instance find each other: at the leader, or on their own node."""
    if is_spread(role):
        at_leader = ["--dist-init-addr", str(leader.endpoint("dist-init"))]
        return [*at_leader, "--nnodes", str(role.nodes), "--node-rank", str(slot.node_rank)]
    nccl = next((claim for claim in slot.ports if claim.name == "nccl"), None)
    return [] if nccl is None else ["--nccl-port", str(nccl.port)]


def _tcp_store(leader: Slot) -> Env:
    port = next((claim.port for claim in leader.ports if claim.name == TCP_STORE), None)
    return {} if port is None else {"SGLANG_TCP_STORE_PORT": str(port)}


def _ib_device_flags(topology: Topology, slot: Slot, release: Release) -> list[str]:
    transfer = topology.transfer
    if transfer.ib_devices is None or not reads_ib_devices(transfer, release):
        return []
    value = ib_device_flag(transfer.ib_devices, slot.node.name, slot.device_indices)
    return _if_stated("--disaggregation-ib-device", value)


def _passed_on(topology: Topology, role: Role, release: Release) -> tuple[str, ...]:
    """The document's own flags, each once: the role's word over that of `defaults`, by whatever alias.

    The table of an older release knows what later ones call its flags, `cuda-graph-max-bs-decode` for one.
    """
    chosen = choose_table("sglang", release.version)
    table = None if chosen is None else chosen.table
    layers = (canonical(args, table) for args in (topology.defaults.args, role.args))
    return to_argv(merged(*layers), table)


def _if_stated(flag: str, value: str | None) -> list[str]:
    return [] if value is None else [flag, value]


PROGRAM: Program = SglangEngine()
