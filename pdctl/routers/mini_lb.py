"""The mini load balancer of this project, `python -m runtime.router`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic
from pdctl.flags import merged, merged_env, to_argv
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import ROUTER_HTTP_PORT, PortNeed
from pdctl.program import Program, Rule
from pdctl.routers.base import DEFAULT_ARGS, behaviour, unknown_policies, worker_flags
from pdctl.topology.model import Args, Breaker, Queue, Role, Router, Topology

POLICIES = ("random", "round_robin", "least_in_flight")


@dataclass(frozen=True, slots=True)
class MiniLoadBalancer:
    owned_flags = frozenset(
        {"prefill", "decode", "host", "port", "policy", "prefill-policy", "decode-policy"}
    )
    requests_metric = "pdctl_router_requests_total"

    def port_needs(self, part: Role | Router, topology: Topology) -> tuple[PortNeed, ...]:
        return (
            PortNeed(
                name="http",
                base=part.port or ROUTER_HTTP_PORT,
                requested=part.port is not None,
                path=("router", "port"),
            ),
        )

    def command(self, slot: Slot, layout: Layout) -> Command:
        router = layout.topology.router
        argv = [router.python or slot.node.python, "-m", "runtime.router"]
        argv += ["--host", router.host or slot.node.address, "--port", str(slot.endpoint("http").port)]
        argv += worker_flags(layout)
        policies: Args = {
            "policy": router.policy,
            "prefill-policy": router.prefill_policy,
            "decode-policy": router.decode_policy,
        }
        argv += to_argv(merged(DEFAULT_ARGS, policies, behaviour(router), router.args))
        return Command(argv=tuple(argv), env=merged_env(router.env))

    def ready(self, slot: Slot, layout: Layout) -> Probe | None:
        http = slot.endpoint("http")
        deadline_s = layout.topology.health.ready_deadline_s
        return Probe(host=http.host, port=http.port, path="/readiness", deadline_s=deadline_s)

    def prepare(self, topology: Topology, python: str) -> tuple[str, ...]:
        return ()

    def rules(self) -> tuple[Rule, ...]:
        return (
            Rule(code="PD212", check=_policies_are_known),
            Rule(code="PD251", check=_no_settings_of_the_other_router),
        )


def _policies_are_known(topology: Topology) -> Iterable[Diagnostic]:
    return unknown_policies(topology, kind="mini_lb", known=POLICIES)


def _no_settings_of_the_other_router(topology: Topology) -> Iterable[Diagnostic]:
    """Fields of the schema that only sglang-router reads."""
    router = topology.router
    absent = {
        "version": router.version is None,
        "metrics_port": router.metrics_port is None,
        "api_key_env": router.api_key_env is None,
        "breaker": router.breaker == Breaker(),
        "queue": router.queue == Queue(),
    }
    for name, is_absent in absent.items():
        if not is_absent:
            yield Diagnostic(
                code="PD251",
                message=f"the mini load balancer has no setting `router.{name}`",
                span=topology.source.key("router", name),
                path=f"router.{name}",
                help="remove it, or choose `router.kind: sglang_router`",
            )


PROGRAM: Program = MiniLoadBalancer()
