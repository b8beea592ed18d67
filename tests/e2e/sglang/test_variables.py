"""Every variable that our plans set is declared by its version of SGLang, or read by a library beneath it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.lifecycle.planning import TopologySource, plan_file
from pdctl.plan.model import RoleKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # the testbed may have to be built first

TOPOLOGIES = sorted(
    path
    for path in (Path(__file__).parents[3] / "topologies").glob("*.yaml")
    if "kind: sglang," in path.read_text("utf-8")
)
# Families of what runs beneath SGLang; who reads them.
FOREIGN = (
    "NCCL_",  # NCCL: docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html
    "GLOO_",  # torch.distributed's CPU backend
    "TP_SOCKET_",  # torch's TensorPipe
    "MC_",  # Mooncake's transfer engine: mooncake-transfer-engine/src/config.cpp
    "MOONCAKE_",  # Mooncake, also read by SGLang's own connector
    "UCX_",  # UCX, beneath NIXL
    "FI_",  # libfabric, beneath NIXL and Mooncake on EFA
    "NVSHMEM_",  # DeepEP
    "CUDA_",
    "ASCEND_",  # memfabric and CANN
    "HCCL_",
    "DEEP_NORMAL_MODE_USE_INT8_QUANT",  # DeepEP for Ascend
    "STREAMS_PER_DEVICE",  # torch_npu
    "TASK_QUEUE_ENABLE",  # torch_npu
    "PYTORCH_",
    "TORCH",
    "OMP_",
    "HF_",
)
# Read by SGLang outside its registry: utils/network.py, hardware_backend/npu/memory_pool_npu.py.
UNREGISTERED = {"SGLANG_HOST_IP", "SGLANG_USE_FIA_NZ"}


@pytest.mark.parametrize("path", TOPOLOGIES, ids=lambda path: path.stem)
def test_every_variable_is_known_to_its_reader(path: Path, real_parser, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SGLANG_MODEL", "/models/tiny")
    monkeypatch.setenv("SGLANG_PYTHON", "python3")
    made = plan_file(TopologySource(path=str(path)))
    declared = real_parser(made.topology.engine.version).variables
    unknown = {
        name
        for process in made.plan.processes
        if process.role is not RoleKind.ROUTER
        for name in process.env
        if name not in declared | UNREGISTERED and not name.startswith(FOREIGN)
    }
    assert unknown == set()
