"""What routers have in common: the list of workers, and the check of policy names."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.plan.layout import Layout
from pdctl.plan.model import RoleKind
from pdctl.topology.model import Args, Topology

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


def unknown_policies(topology: Topology, *, kind: str, known: tuple[str, ...]) -> Iterable[Diagnostic]:
    router = topology.router
    fields = {
        "policy": router.policy,
        "prefill_policy": router.prefill_policy,
        "decode_policy": router.decode_policy,
    }
    for name, policy in fields.items():
        if policy is not None and policy not in known:
            yield Diagnostic(
                code="PD212",
                message=f"`{kind}` has no policy `{policy}`",
                span=topology.source.value("router", name),
                path=f"router.{name}",
                notes=(f"it has {', '.join(f'`{each}`' for each in known)}",),
            )
