"""The reference engine, `python -m runtime.engine`: small, in torch, for CPUs and for reading."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic
from pdctl.flags import merged, merged_env, to_argv
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import BOOTSTRAP_BASE, DECODE_HTTP_BASE, PREFILL_HTTP_BASE, PortNeed
from pdctl.program import Program, Rule
from pdctl.topology.model import Role, Router, Topology, Transfer
from pdctl.topology.source import DocumentPath, dotted

BACKENDS = ("tcp",)


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
        if part.name == "decode":
            return (http,)
        bootstrap = PortNeed(
            name="bootstrap",
            base=part.bootstrap_port or BOOTSTRAP_BASE,
            requested=part.bootstrap_port is not None,
            path=(part.name, "bootstrap_port"),
        )
        return (http, bootstrap)

    def command(self, slot: Slot, layout: Layout) -> Command:
        topology = layout.topology
        role = _role(slot, topology)
        http = slot.endpoint("http")
        argv = [layout.engine_python(slot.node), "-m", "runtime.engine"]
        argv += ["--model-path", layout.model_path(slot.node), "--served-model-name", topology.model.name]
        argv += ["--host", http.host, "--port", str(http.port)]
        argv += ["--disaggregation-mode", role.name]
        argv += ["--disaggregation-transfer-backend", topology.transfer.backend]
        if role.name == "prefill":
            argv += ["--disaggregation-bootstrap-port", str(slot.endpoint("bootstrap").port)]
        argv += _transfer_flags(topology)
        argv += to_argv(merged(topology.defaults.args, role.args))
        return Command(argv=tuple(argv), env=merged_env(topology.defaults.env, role.env, slot.node.env))

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        http = slot.endpoint("http")
        deadline_s = layout.topology.health.ready_deadline_s
        return Probe(host=http.host, port=http.port, path="/health", deadline_s=deadline_s)

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        if not topology.model.is_builtin:
            return ()
        return (python, "-m", "runtime.models", "pull", topology.model.path, "--progress", "json")

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule(code="PD210", check=_widths_are_one),
            Rule(code="PD213", check=_model_is_a_path),
            Rule(code="PD250", check=_no_settings_of_other_backends),
            Rule(code="PD305", check=_backend_is_known),
        )


def _role(slot: Slot, topology: Topology) -> Role:
    return topology.prefill if slot.role == "prefill" else topology.decode


def _transfer_flags(topology: Topology) -> list[str]:
    transfer = topology.transfer
    seconds = {
        "--bootstrap-timeout": transfer.bootstrap_timeout_s,
        "--waiting-timeout": transfer.waiting_timeout_s,
        "--heartbeat-interval": transfer.heartbeat_interval_s,
    }
    flags = [word for flag, value in seconds.items() if value is not None for word in (flag, f"{value:g}")]
    return [*flags, "--verify-kv"] if transfer.verify_kv else flags


def _widths_are_one(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        parallel = role.parallel
        widths: dict[DocumentPath, int] = {
            ("nodes",): role.nodes or 1,
            ("devices",): role.devices or 1,
            ("parallel", "tp"): parallel.tp,
            ("parallel", "attn_dp"): parallel.attn_dp,
            ("parallel", "ep"): parallel.ep,
            ("parallel", "pp"): parallel.pp,
            ("parallel", "attn_cp"): parallel.attn_cp,
            ("parallel", "dp"): parallel.dp,
        }
        for key, width in widths.items():
            if width != 1:
                path = (role.name, *key)
                name = key[-1]
                yield Diagnostic(
                    code="PD210",
                    message=f"the reference engine runs an instance in one process, found `{name}: {width}`",
                    span=topology.source.value(*path),
                    path=".".join(map(str, path)),
                    help=f"set `{name}: 1`, and `{role.name}.instances` for more of them",
                )


def _model_is_a_path(topology: Topology) -> Iterable[Diagnostic]:
    path = topology.model.path
    if topology.model.is_builtin or path.startswith("/"):
        return
    yield Diagnostic(
        code="PD213",
        message=f"the reference engine reads models from disk, found `{path}`",
        span=topology.source.value("model", "path"),
        path="model.path",
        notes=("it fetches nothing from a hub",),
        help=f"write `./{path}` if it lies beside this file, else a path from `/`, or a `builtin:` name",
    )


def _no_settings_of_other_backends(topology: Topology) -> Iterable[Diagnostic]:
    """Fields of the schema that only other engines read."""
    transfer, default = topology.transfer, Transfer()
    absent: Mapping[str, bool] = {
        "heartbeat_max_failures": transfer.heartbeat_max_failures is None,
        "ib_devices": transfer.ib_devices is None,
        "nvlink": transfer.nvlink == default.nvlink,
        "staging": transfer.staging == default.staging,
        "threads": transfer.threads is None,
        "queues": transfer.queues is None,
        "nixl": transfer.nixl == default.nixl,
        "ascend": transfer.ascend == default.ascend,
    }
    paths: list[DocumentPath] = [("transfer", name) for name, is_absent in absent.items() if not is_absent]
    paths += [(role.name, "kv_events_port") for role in topology.roles if role.kv_events_port is not None]
    yield from (
        Diagnostic(
            code="PD250",
            message=f"the reference engine has no setting `{dotted(path)}`",
            span=topology.source.key(*path),
            path=dotted(path),
            help="remove it, or choose `engine.kind: sglang`",
        )
        for path in paths
    )


def _backend_is_known(topology: Topology) -> Iterable[Diagnostic]:
    backend = topology.transfer.backend
    if backend not in BACKENDS:
        yield Diagnostic(
            code="PD305",
            message=f"the reference engine has no transfer backend `{backend}`",
            span=topology.source.value("transfer", "backend"),
            path="transfer.backend",
            notes=(f"it has {', '.join(f'`{each}`' for each in BACKENDS)}",),
            help="set `transfer.backend: tcp`",
        )


PROGRAM: Program = ReferenceEngine()
