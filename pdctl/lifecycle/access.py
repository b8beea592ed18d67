"""From the name of a deployment to what is known of it and to the executor that reaches it."""

from __future__ import annotations

import os
from dataclasses import dataclass

from pdctl import plugins
from pdctl.diagnostics import DiagnosticError
from pdctl.executors.base import Executor
from pdctl.fields import FieldError
from pdctl.plan.codec import plan_from_json
from pdctl.plan.model import LaunchPlan
from pdctl.state.paths import deployments_dir, state_dir
from pdctl.state.record import RecordStore, is_deployment_name
from pdctl.topology.model import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """`plan` is what was last applied; None: nothing is known of it."""

    name: str
    executor: Executor
    plan: LaunchPlan | None

    def require_plan(self) -> LaunchPlan:
        if self.plan is None:
            raise _unknown(self.name)
        return self.plan

    def require_known(self) -> None:
        """Raise unless there is a plan, or at least something on the nodes."""
        if self.plan is None and self.name not in self.executor.deployments():
            raise _unknown(self.name)


def records() -> RecordStore:
    """The operator's own records."""
    return RecordStore(directory=deployments_dir(state_dir(os.environ)))


def executor_for(cluster: Cluster) -> Executor:
    factory = plugins.executor_factory(cluster.executor)
    if factory is None:
        raise DiagnosticError.one(
            "PD507",
            f"this version has no executor `{cluster.executor}`",
            notes=(f"it has {_names(plugins.names('executors'))}",),
            help="`pdctl plan` and `pdctl render` need none",
        )
    return factory(cluster, os.environ)


def deployments() -> tuple[str, ...]:
    """Every deployment that this operator has a record of, or that runs on this machine."""
    local = executor_for(Cluster())
    return tuple(sorted({*records().names(), *local.deployments()}))


def open_deployment(name: str) -> Deployment:
    """Reach a deployment by name. A lost or damaged record costs nothing: the nodes hold the plan too."""
    if not is_deployment_name(name):
        raise _unknown(name)
    record = records().load(name)
    recorded = _plan_from(None if record is None else record.plan)
    executor = executor_for(Cluster() if recorded is None else Cluster(executor=recorded.executor))
    return Deployment(name=name, executor=executor, plan=recorded or _plan_from(executor.kept_plan(name)))


def _unknown(name: str) -> DiagnosticError:
    known = deployments()
    return DiagnosticError.one(
        "PD608",
        f"no deployment `{name}` is known",
        notes=(f"known are {_names(known)}",) if known else (),
        help="`pdctl up FILE` starts one",
    )


def _plan_from(content: bytes | None) -> LaunchPlan | None:
    if content is None:
        return None
    try:
        return plan_from_json(content)
    except FieldError:
        return None


def _names(names: tuple[str, ...]) -> str:
    return ", ".join(f"`{name}`" for name in names)
