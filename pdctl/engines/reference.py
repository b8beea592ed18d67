"""The reference engine, `python -m runtime.engine`: small, in torch, for CPUs and for reading."""

from __future__ import annotations

from dataclasses import dataclass

from pdctl.engines.sglang.devices import visible_devices
from pdctl.flags import merged, merged_env, to_argv
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import BOOTSTRAP_BASE, DECODE_HTTP_BASE, DIST_INIT_BASE, PREFILL_HTTP_BASE, PortNeed
from pdctl.program import Program, Rule
from pdctl.topology.model import Role, Router, Topology, Transfer


@dataclass(frozen=True, slots=True)
class ReferenceEngine:
    owned_flags = frozenset(
        {
            "model-path",
            "served-model-name",
            "host",
            "port",
            "disaggregation-mode",
            "disaggregation-transfer-backend",
            "disaggregation-bootstrap-port",
            "bootstrap-timeout",
            "waiting-timeout",
            "heartbeat-interval",
            "verify-kv",
            "transfer-threads",
            "transfer-queues",
            "staging",
            "bootstrap-token-file",
            "staging-block-mb",
            "staging-pool-mb",
            "disaggregation-ib-device",
            "nixl-plugin",
            "ascend-protocol",
            "tp-size",
            "tp",
            "attn-dp-size",
            "ep-size",
            "nnodes",
            "node-rank",
            "dist-init-addr",
        }
    )
    requests_metric = "sglang:num_requests_total"

    def port_needs(self, part: Role | Router, topology: Topology) -> tuple[PortNeed, ...]:
        if not isinstance(part, Role):
            raise TypeError(f"`{part.kind}` is no role of an engine")
        base = PREFILL_HTTP_BASE if part.name == "prefill" else DECODE_HTTP_BASE
        http = PortNeed(
            name="http", base=part.port or base, requested=part.port is not None, path=(part.name, "port")
        )
        rendezvous = (PortNeed(name="dist-init", base=DIST_INIT_BASE),) if (part.nodes or 1) > 1 else ()
        if part.name == "decode":
            return (http, *rendezvous)
        bootstrap = PortNeed(
            name="bootstrap",
            base=part.bootstrap_port or BOOTSTRAP_BASE,
            requested=part.bootstrap_port is not None,
            path=(part.name, "bootstrap_port"),
        )
        return (http, bootstrap, *rendezvous)

    def command(self, slot: Slot, layout: Layout) -> Command:
        """One process per node; it starts a rank for each of its devices."""
        topology = layout.topology
        role = _role(slot, topology)
        argv = [layout.engine_python(slot.node), "-m", "runtime.engine"]
        argv += ["--model-path", layout.model_path(slot.node), "--served-model-name", topology.model.name]
        argv += ["--host", slot.node.address]
        argv += ["--port", str(slot.endpoint("http").port)] if slot.is_leader else []
        argv += ["--disaggregation-mode", role.name]
        argv += ["--disaggregation-transfer-backend", topology.transfer.backend]
        if slot.is_leader and role.name == "prefill":
            argv += ["--disaggregation-bootstrap-port", str(slot.endpoint("bootstrap").port)]
        argv += _width_flags(role)
        argv += _rendezvous_flags(role, slot, layout)
        argv += _transfer_flags(topology)
        argv += _device_flags(topology.transfer, slot)
        argv += to_argv(merged(topology.defaults.args, role.args))
        env = visible_devices(topology, role, slot) if topology.transfer.backend == "ascend" else {}
        own = merged_env(topology.defaults.env, role.env, slot.node.env)
        return Command(argv=tuple(argv), env=merged_env(env, own))

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        if not slot.is_leader:
            return None  # it has no port; the leader is ready when all ranks are
        http = slot.endpoint("http")
        deadline_s = layout.topology.health.ready_deadline_s
        return Probe(host=http.host, port=http.port, path="/health", deadline_s=deadline_s)

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        if not topology.model.is_builtin:
            return ()
        return (python, "-m", "runtime.models", "pull", topology.model.path, "--progress", "json")

    def rules(self) -> tuple[Rule, ...]:
        from pdctl.rules import reference  # they build on this package

        return reference.RULES


def _role(slot: Slot, topology: Topology) -> Role:
    return topology.prefill if slot.role == "prefill" else topology.decode


def _width_flags(role: Role) -> list[str]:
    parallel = role.parallel
    widths = {"--tp-size": parallel.tp, "--attn-dp-size": parallel.attn_dp, "--ep-size": parallel.ep}
    return [word for flag, width in widths.items() if width != 1 for word in (flag, str(width))]


def _rendezvous_flags(role: Role, slot: Slot, layout: Layout) -> list[str]:
    """Ranks of several nodes meet at the leader."""
    if (role.nodes or 1) == 1:
        return []
    at_leader = ["--dist-init-addr", str(layout.leader(slot).endpoint("dist-init"))]
    return [*at_leader, "--nnodes", str(role.nodes), "--node-rank", str(slot.node_rank)]


def _transfer_flags(topology: Topology) -> list[str]:
    transfer = topology.transfer
    seconds = {
        "--bootstrap-timeout": transfer.bootstrap_timeout_s,
        "--waiting-timeout": transfer.waiting_timeout_s,
        "--heartbeat-interval": transfer.heartbeat_interval_s,
    }
    sizes = {
        "--transfer-threads": transfer.threads,
        "--transfer-queues": transfer.queues,
        "--staging-block-mb": transfer.staging.buffer_mb,
        "--staging-pool-mb": transfer.staging.pool_mb,
    }
    numbers = {**seconds, **sizes}
    flags = [
        word
        for flag, value in numbers.items()
        if value is not None
        for word in (flag, str(value) if isinstance(value, int) else f"{value:g}")
    ]
    flags += ["--staging", transfer.staging.mode] if transfer.staging.mode != "auto" else []
    token_file = transfer.bootstrap_token_file
    flags += ["--bootstrap-token-file", token_file] if token_file is not None else []
    flags += ["--nixl-plugin", transfer.nixl.plugin] if transfer.nixl.plugin is not None else []
    flags += ["--ascend-protocol", transfer.ascend.protocol] if transfer.ascend.protocol is not None else []
    return [*flags, "--verify-kv"] if transfer.verify_kv else flags


def _device_flags(transfer: Transfer, slot: Slot) -> list[str]:
    """The RDMA devices of one node, which all ranks there share."""
    devices = None if transfer.ib_devices is None else transfer.ib_devices.on(slot.node.name)
    return ["--disaggregation-ib-device", ",".join(devices.shared)] if devices and devices.shared else []


PROGRAM: Program = ReferenceEngine()
