"""The router of the SGLang project, `python -m sglang_router.launch_router`, in its PD mode (0.3.2).

What is said of its behaviour was seen with the released binary of 0.3.2 in front of two logging servers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.flags import canonical, merged, merged_env, to_argv
from pdctl.flagtable.shelf import choose_table
from pdctl.flagtable.versions import version_key
from pdctl.plan.layout import Layout, Slot
from pdctl.plan.model import Command, Probe
from pdctl.plan.ports import ROUTER_HTTP_PORT, ROUTER_METRICS_PORT, PortNeed
from pdctl.program import Program, Rule
from pdctl.routers.base import DEFAULT_ARGS, behaviour, unknown_policies, worker_flags
from pdctl.topology.model import Args, Role, Router, Topology

POLICIES = ("random", "round_robin", "cache_aware", "power_of_two", "manual")
PREFILL_POLICIES = ("bucket",)

# SGLang answers /health only after a token, for which it waits up to 20 s while a long prompt is computed.
# The router's own 5 s would take a busy prefill for a dead one.
_LATE_ANSWERS: Args = {"health-check-timeout-secs": 25}

# The router takes its key from the command line alone, which every user of the node can read. So a few words
# of Python read it from the environment and call what the module's own `main` calls.
_WITH_KEY = "; ".join(
    (
        "import os, sys",
        "from sglang_router.launch_router import launch_router, parse_router_args",
        'key = os.environ.get("{name}") or sys.exit("{name} is not set on this node")',
        'launch_router(parse_router_args([*sys.argv[1:], "--api-key", key]))',
    )
)


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
            "api-key",
        }
    )
    requests_metric = None  # its metrics lie on a port of their own

    def port_needs(self, part: Role | Router, topology: Topology) -> tuple[PortNeed, ...]:
        if not isinstance(part, Router):
            raise TypeError(f"`{part.name}` is no router")
        http = PortNeed(
            name="http",
            base=part.port or ROUTER_HTTP_PORT,
            requested=part.port is not None,
            path=("router", "port"),
        )
        # A taken metrics port ends the router at start, so it is planned like any other.
        metrics = PortNeed(
            name="metrics",
            base=part.metrics_port or ROUTER_METRICS_PORT,
            requested=part.metrics_port is not None,
            path=("router", "metrics_port"),
        )
        return (http, metrics)

    def command(self, slot: Slot, layout: Layout) -> Command:
        router = layout.topology.router
        argv = [router.python or slot.node.python, *_start(router), "--pd-disaggregation"]
        argv += ["--host", router.host or slot.node.listen_address]
        argv += ["--port", str(slot.endpoint("http").port)]
        argv += ["--prometheus-host", slot.node.listen_address]
        argv += ["--prometheus-port", str(slot.endpoint("metrics").port)]
        argv += worker_flags(layout)
        argv += _passed_on(router)
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
            Rule(code="PD347", check=_backoffs_are_in_order),
            Rule(code="PD252", check=_loads_can_be_seen),
            Rule(code="PD253", check=_canary_has_a_key),
            Rule(code="PD348", check=_queue_has_something_to_hold),
        )


def _start(router: Router) -> tuple[str, str]:
    if router.api_key_env is None:
        return ("-m", "sglang_router.launch_router")
    return ("-c", _WITH_KEY.format(name=router.api_key_env))


def _passed_on(router: Router) -> tuple[str, ...]:
    breaker, queue = router.breaker, router.queue
    fields: Args = {
        "policy": router.policy,
        "prefill-policy": router.prefill_policy,
        "decode-policy": router.decode_policy,
        "disable-circuit-breaker": not breaker.enabled,
        "cb-failure-threshold": breaker.failures,
        "cb-success-threshold": breaker.successes,
        "cb-timeout-duration-secs": breaker.open_s,
        "cb-window-duration-secs": breaker.window_s,
        "max-concurrent-requests": queue.max_concurrent,
        "queue-size": queue.size,
        "queue-timeout-secs": queue.timeout_s,
    }
    chosen = choose_table("sglang_router", router.version)
    table = None if chosen is None else chosen.table
    own = canonical(router.args, table)
    return to_argv(merged(DEFAULT_ARGS, _LATE_ANSWERS, fields, behaviour(router), own), table)


def _policies_are_known(topology: Topology) -> Iterable[Diagnostic]:
    return unknown_policies(topology, kind="sglang_router", known=POLICIES, only_prefill=PREFILL_POLICIES)


def _loads_can_be_seen(topology: Topology) -> Iterable[Diagnostic]:
    """`power_of_two` asks GET /get_load, which SGLang dropped in 0.5.22: every load then counts as -1."""
    version = version_key(topology.engine.version or "")
    last = version_key("0.5.22")
    if topology.engine.kind != "sglang" or (version is not None and last is not None and version < last):
        return
    router = topology.router
    named = {
        "policy": router.policy,
        "prefill_policy": router.prefill_policy,
        "decode_policy": router.decode_policy,
    }
    for name, policy in named.items():
        if policy == "power_of_two":
            yield Diagnostic(
                code="PD252",
                message="`power_of_two` can't see the load of SGLang from 0.5.22 on",
                severity=Severity.WARNING,
                span=topology.source.value("router", name),
                path=f"router.{name}",
                notes=("it asks `/get_load`, which is gone, so that all instances look alike",),
                help="use `cache_aware` or `round_robin`",
            )


def _canary_has_a_key(topology: Topology) -> Iterable[Diagnostic]:
    if topology.router.api_key_env is not None and topology.health.canary:
        yield Diagnostic(
            code="PD253",
            message="the canary doesn't know the router's key, and will be refused",
            severity=Severity.WARNING,
            span=topology.source.value("router", "api_key_env"),
            path="router.api_key_env",
            help="set `health.canary: false`",
        )


def _backoffs_are_in_order(topology: Topology) -> Iterable[Diagnostic]:
    """It ends at start: "Must be >= initial_backoff_ms"."""
    retries = topology.router.retries
    first, longest = retries.initial_backoff_ms, retries.max_backoff_ms
    if first is not None and longest is not None and longest < first:
        yield Diagnostic(
            code="PD347",
            message=f"the longest pause between tries is {longest} ms, the first one is {first} ms",
            span=topology.source.value("router", "retries", "max_backoff_ms"),
            path="router.retries.max_backoff_ms",
            help=f"set it to {first} or more",
        )


def _queue_has_something_to_hold(topology: Topology) -> Iterable[Diagnostic]:
    """Its default lets any number of requests through at once (`max_concurrent_requests: -1`)."""
    queue = topology.router.queue
    if queue.max_concurrent is not None:
        return
    for name, value in {"size": queue.size, "timeout_s": queue.timeout_s}.items():
        if value is not None:
            yield Diagnostic(
                code="PD348",
                message=f"`queue.{name}` does nothing: no request ever waits",
                severity=Severity.WARNING,
                span=topology.source.value("router", "queue", name),
                path=f"router.queue.{name}",
                notes=("requests wait once `queue.max_concurrent` are served, and that isn't set",),
                help="set `queue.max_concurrent`, or remove it",
            )


PROGRAM: Program = SglangRouter()
