"""See that the router knows every instance and finds each of them healthy."""

from __future__ import annotations

from pdctl.clock import Clock
from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.fields import FieldError, parse_fields
from pdctl.hostlist import fold
from pdctl.plan.model import LaunchPlan, RoleKind

# Routers look at a worker every few seconds, and some want two good answers.
PATIENCE_S = 30.0
ASK_AGAIN_EVERY_S = 0.5


def require_workers(plan: LaunchPlan, nodes: NodeAccess, *, clock: Clock) -> None:
    """Wait until the router lists all instances as healthy. Raises `DiagnosticError` with those it does not.

    Its own readiness needs one worker of each role only. A router that does not tell is taken at its word.
    """
    router = next(process for process in plan.processes if process.instance_id == plan.router.id)
    request = ProbeRequest(node=router.node, url=f"http://{plan.router.http}/workers")
    wanted = {
        f"http://{instance.http}": instance.id
        for instance in plan.instances
        if instance.role is not RoleKind.ROUTER
    }
    began = clock.now()
    while True:
        (answer,) = nodes.probe([request])
        listed = _listed(answer)
        if listed is None:
            return
        missing = [instance_id for url, instance_id in wanted.items() if not listed.get(url)]
        if not missing:
            return
        if clock.now() - began > PATIENCE_S:
            raise DiagnosticError.one(
                "PD612",
                f"the router does not send requests to {fold(missing)}",
                notes=tuple(_why(url, listed) for url, each in wanted.items() if each in missing),
                help=f"look at `pdctl logs --name {plan.name} {plan.router.id}`; all processes still run",
            )
        clock.sleep(ASK_AGAIN_EVERY_S)


def _listed(answer: ProbeAnswer) -> dict[str, bool] | None:
    """Whether each worker is healthy, by URL; None where the router has no such list for us."""
    if answer.status != 200:
        return None
    try:
        workers = parse_fields("the router's list", answer.body.encode()).objects("workers")
        return {each.text("url"): each.flag("is_healthy") for each in workers}
    except FieldError:
        return None


def _why(url: str, listed: dict[str, bool]) -> str:
    return f"it finds `{url}` unhealthy" if url in listed else f"it does not list `{url}`"
