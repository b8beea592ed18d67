"""Values that several screens show."""

from __future__ import annotations

import pytest

from pdctl.plan.model import Endpoint, Instance, LaunchPlan, PlanNode, PortClaim, ProcessSpec, RoleKind
from pdctl.state.observed import Phase
from pdctl.status import DeploymentStatus, ProcessStatus

PYTHON = "/opt/venv/bin/python"
ENDPOINT = Endpoint(host="127.0.0.1", port=8000)


@pytest.fixture
def prefill() -> ProcessSpec:
    return ProcessSpec(
        id="prefill-0.0",
        instance_id="prefill-0",
        role=RoleKind.PREFILL,
        node="localhost",
        node_rank=0,
        device_indices=(0, 1, 2, 3),
        argv=(
            *(PYTHON, "-m", "runtime.engine", "--model-path", "builtin:smollm2-135m-instruct"),
            *("--disaggregation-mode", "prefill", "--port", "30000", "--served-model-name", "it's mine"),
        ),
        env={"OMP_NUM_THREADS": "1", "GREETING": "hello world"},
        listen="127.0.0.1",
        ports=(PortClaim(name="http", port=30000), PortClaim(name="bootstrap", port=8998)),
        after=(),
        ready=None,
        grace_s=10.0,
        prepare=(PYTHON, "-m", "runtime.models", "pull", "smollm2-135m-instruct"),
    )


@pytest.fixture
def plan(prefill: ProcessSpec) -> LaunchPlan:
    router = ProcessSpec(
        id="router-0.0",
        instance_id="router-0",
        role=RoleKind.ROUTER,
        node="localhost",
        node_rank=0,
        device_indices=(),
        argv=(PYTHON, "-m", "runtime.router", "--port", "8000"),
        env={},
        listen="127.0.0.1",
        ports=(PortClaim(name="http", port=8000),),
        after=("prefill-0.0",),
        ready=None,
        grace_s=10.0,
    )
    return LaunchPlan(
        name="laptop-1p1d",
        executor="local",
        topology_digest="t" * 64,
        nodes=(
            PlanNode(name="localhost", address="127.0.0.1"),
            PlanNode(name="spare", address="127.0.1.1"),
        ),
        instances=(
            Instance(id="prefill-0", role=RoleKind.PREFILL, process_ids=("prefill-0.0",), http=ENDPOINT),
            Instance(id="router-0", role=RoleKind.ROUTER, process_ids=("router-0.0",), http=ENDPOINT),
        ),
        processes=(prefill, router),
        served_model="smollm2-135m-instruct",
        canary=True,
        digest="0123456789abcdef" * 4,
    )


@pytest.fixture
def ready_status() -> DeploymentStatus:
    return DeploymentStatus(
        name="laptop-1p1d",
        executor="local",
        phase=Phase.READY,
        endpoint=ENDPOINT,
        served_model="smollm2-135m-instruct",
        processes=(
            _process("prefill-0.0", 4711, ("http", 30000), ("bootstrap", 8998)),
            _process("router-0.0", 4712, ("http", 8000)),
        ),
        locked_by=None,
        problems=(),
    )


@pytest.fixture
def broken_status() -> DeploymentStatus:
    return DeploymentStatus(
        name="two-hosts",
        executor="ssh",
        phase=Phase.FAILED,
        endpoint=ENDPOINT,
        served_model=None,
        processes=(
            ProcessStatus(
                id="decode-0.0",
                role="decode",
                node="h2",
                phase=Phase.FAILED,
                pid=None,
                ports=(),
                uptime_s=None,
                rss_bytes=None,
                device_bytes=None,
                num_requests=None,
                exit_code=1,
                reason=None,
            ),
        ),
        locked_by="ada@desk since 12:04 for `up`",
        problems=("`h3` does not answer: no route to host",),
    )


def _process(process_id: str, pid: int, *ports: tuple[str, int]) -> ProcessStatus:
    return ProcessStatus(
        id=process_id,
        role=process_id.partition("-")[0],
        node="localhost",
        phase=Phase.READY,
        pid=pid,
        ports=tuple(PortClaim(name=name, port=port) for name, port in ports),
        uptime_s=72.3,
        rss_bytes=451 * 2**20,
        device_bytes=None,
        num_requests=12,
        exit_code=None,
        reason=None,
    )
