"""What routers have in common: the list of workers, and the check of policy names."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.plan.layout import Layout
from pdctl.plan.model import RoleKind
from pdctl.topology.model import Args, Router, Topology

# The routers' own default looks at a worker every 60 s: too rarely to notice one that was restarted.
DEFAULT_ARGS: Args = {"health-check-interval-secs": 5}


def worker_flags(layout: Layout) -> list[str]:
    """`--prefill URL BOOTSTRAP_PORT …` and `--decode URL …`, one flag per instance.

    The bootstrap port is always said: told none, a router passes null on, and decode falls back to 8998.
    """
    flags: list[str] = []
    for leader in layout.leaders(RoleKind.PREFILL):
        bootstrap = leader.endpoint("bootstrap")
        flags += ["--prefill", f"http://{leader.endpoint('http')}", str(bootstrap.port)]
    for leader in layout.leaders(RoleKind.DECODE):
        flags += ["--decode", f"http://{leader.endpoint('http')}"]
    return flags


def behaviour(router: Router) -> Args:
    """The fields of `router` that both routers have, by the flags that both spell alike."""
    retries, check = router.retries, router.health_check
    return {
        "request-timeout-secs": router.request_timeout_s,
        # Both count attempts under this name, the first one included, and refuse fewer than one retry.
        "retry-max-retries": None if retries.attempts == 1 else retries.attempts,
        "disable-retries": retries.attempts == 1,
        "retry-initial-backoff-ms": retries.initial_backoff_ms,
        "retry-max-backoff-ms": retries.max_backoff_ms,
        **_known(
            {
                "health-check-endpoint": check.endpoint,
                "health-check-interval-secs": check.interval_s,
                "health-check-timeout-secs": check.timeout_s,
                "health-failure-threshold": check.failures,
                "health-success-threshold": check.successes,
            }
        ),
    }


def _known(args: Args) -> Args:
    """Without what isn't stated, so that it doesn't cover a default."""
    return {name: value for name, value in args.items() if value is not None}


def unknown_policies(
    topology: Topology, *, kind: str, known: tuple[str, ...], only_prefill: tuple[str, ...] = ()
) -> Iterable[Diagnostic]:
    router = topology.router
    fields = {
        "policy": router.policy,
        "prefill_policy": router.prefill_policy,
        "decode_policy": router.decode_policy,
    }
    for name, policy in fields.items():
        of_field = (*known, *only_prefill) if name == "prefill_policy" else known
        if policy is not None and policy not in of_field:
            yield Diagnostic(
                code="PD212",
                message=f"`{kind}` has no policy `{policy}`",
                span=topology.source.value("router", name),
                path=f"router.{name}",
                notes=(f"it has {', '.join(f'`{each}`' for each in of_field)}",),
            )
