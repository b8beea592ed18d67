"""The router of the SGLang project, `python -m sglang_router.launch_router`, in its PD mode (0.3.2)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic
from pdctl.flags import merged, merged_env, to_argv
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import ROUTER_HTTP_PORT, ROUTER_METRICS_PORT, PortNeed
from pdctl.program import Program, Rule
from pdctl.routers.base import DEFAULT_ARGS, unknown_policies, worker_flags
from pdctl.topology.model import Args, Role, Router, Topology

POLICIES = ("random", "round_robin", "cache_aware", "power_of_two", "manual")


@dataclass(frozen=True, slots=True)
class SglangRouter:
    owned_flags = frozenset(
        {
            "pd-disaggregation",
            "prefill",
            "decode",
            "host",
            "port",
            "prometheus-port",
            "prometheus-host",
            "policy",
            "prefill-policy",
            "decode-policy",
        }
    )
    requests_metric = None  # its metrics lie on a port of their own

    def port_needs(self, part: Role | Router) -> tuple[PortNeed, ...]:
        http = PortNeed(
            name="http",
            base=part.port or ROUTER_HTTP_PORT,
            requested=part.port is not None,
            path=("router", "port"),
        )
        # A taken metrics port ends the router at start, so it is planned like any other.
        return (http, PortNeed(name="metrics", base=ROUTER_METRICS_PORT))

    def command(self, slot: Slot, layout: Layout) -> Command:
        router = layout.topology.router
        argv = [router.python or slot.node.python, "-m", "sglang_router.launch_router", "--pd-disaggregation"]
        argv += ["--host", router.host or slot.node.address, "--port", str(slot.endpoint("http").port)]
        argv += ["--prometheus-host", slot.node.address]
        argv += ["--prometheus-port", str(slot.endpoint("metrics").port)]
        argv += worker_flags(layout)
        policies: Args = {
            "policy": router.policy,
            "prefill-policy": router.prefill_policy,
            "decode-policy": router.decode_policy,
        }
        argv += to_argv(merged(DEFAULT_ARGS, policies, router.args))
        return Command(argv=tuple(argv), env=merged_env(router.env))

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        http = slot.endpoint("http")
        deadline_s = layout.topology.health.ready_deadline_s
        return Probe(host=http.host, port=http.port, path="/readiness", deadline_s=deadline_s)

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        return ()

    def rules(self) -> tuple[Rule, ...]:
        return (Rule(code="PD212", check=_policies_are_known),)


def _policies_are_known(topology: Topology) -> Iterable[Diagnostic]:
    return unknown_policies(topology, kind="sglang_router", known=POLICIES)


PROGRAM: Program = SglangRouter()
