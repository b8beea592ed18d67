"""When a deployment that lost processes can still serve."""

from __future__ import annotations

import pytest

from pdctl.lifecycle.planning import TopologySource, plan_file
from pdctl.lifecycle.steward_watch import judge
from pdctl.plan.model import LaunchPlan
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus, ProcessStatus


@pytest.fixture
def plan(tmp_path) -> LaunchPlan:
    """Two prefill instances, two decode instances and a router."""
    file = tmp_path / "t.yaml"
    file.write_text(
        "schema: pdctl/v1\nname: demo\nmodel: {path: builtin:smollm2-135m-instruct}\n"
        "engine: {kind: reference}\nprefill: {instances: 2}\ndecode: {instances: 2}\n"
    )
    return plan_file(TopologySource(path=str(file))).plan


def status(plan: LaunchPlan, **phases: Phase) -> DeploymentStatus:
    """All are ready but those named, as in `decode_0=Phase.LOST`."""
    return DeploymentStatus(
        name=plan.name,
        executor="slurm",
        phase=Phase.READY,
        endpoint=None,
        served_model=None,
        processes=tuple(
            ProcessStatus(
                id=each.id,
                role=each.role.value,
                node=each.node,
                phase=phases.get(each.instance_id.replace("-", "_"), Phase.READY),
                pid=None,
                ports=(),
                uptime_s=None,
                rss_bytes=None,
                device_bytes=None,
                num_requests=None,
                exit_code=3 if phases.get(each.instance_id.replace("-", "_")) is Phase.FAILED else None,
                reason=None,
            )
            for each in plan.processes
        ),
        locked_by=None,
        problems=(),
    )


def test_all_is_well_with_all_there(plan: LaunchPlan):
    verdict = judge(plan, status(plan), ())
    assert (verdict.can_serve, verdict.why) == (True, None)


@pytest.mark.parametrize("phase", [Phase.FAILED, Phase.LOST, Phase.EXITED])
def test_one_instance_of_each_role_is_enough(plan: LaunchPlan, phase: Phase):
    verdict = judge(plan, status(plan, prefill_0=phase, decode_1=phase), ())
    assert verdict.can_serve
    assert verdict.why is not None
    assert "prefill-0.0" in verdict.why
    assert "decode-1.0" in verdict.why


@pytest.mark.parametrize("gone", [("router_0",), ("prefill_0", "prefill_1"), ("decode_0", "decode_1")])
def test_without_a_router_or_a_role_it_cannot_serve(plan: LaunchPlan, gone: tuple[str, ...]):
    verdict = judge(plan, status(plan, **dict.fromkeys(gone, Phase.FAILED)), ())
    assert not verdict.can_serve
    assert verdict.why is not None
    assert "exited with code 3" in verdict.why


@pytest.mark.parametrize("phase", [Phase.STARTING, Phase.UNREADY, Phase.UNKNOWN])
def test_what_may_still_serve_is_not_gone(plan: LaunchPlan, phase: Phase):
    assert judge(plan, status(plan, router_0=phase), ()).can_serve


def test_a_node_that_the_cluster_gave_up_takes_its_processes_along(plan: LaunchPlan):
    (router,) = [each for each in plan.processes if each.instance_id == "router-0"]
    assert not judge(plan, status(plan, router_0=Phase.UNKNOWN), {router.node}).can_serve
