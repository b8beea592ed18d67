"""What nodes need, read off a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from pdctl.doctor.needs import ProgramNeed, needs_of, packages_of
from pdctl.lifecycle.planning import TopologySource, plan_file
from pdctl.topology.model import IbDevices, Model, Settings


def test_a_node_needs_its_processes_ports_programs_and_model(make_plan):
    first, second, _third = needs_of(make_plan())
    assert [(need.process.id, need.claim.name) for need in first.ports] == [
        ("prefill-0.0", "http"),
        ("prefill-0.0", "bootstrap"),
        ("router-0.0", "http"),
    ]
    assert first.programs == (
        ProgramNeed(
            python="python3", packages=("runtime", "torch", "tokenizers", "uvicorn", "msgpack"), env={}
        ),
    )
    assert second.models == ("/models/tiny",)
    assert not second.has_rdma
    assert second.device_indices == ()


def test_only_variables_that_decide_where_packages_are_found_leave_this_machine(make_plan):
    env = {"PYTHONPATH": "/opt/more", "HF_TOKEN": "secret", "LD_LIBRARY_PATH": "/usr/lib"}
    (engine, router) = needs_of(make_plan(defaults=Settings(env=env)))[0].programs
    assert engine.env == {"PYTHONPATH": "/opt/more", "LD_LIBRARY_PATH": "/usr/lib"}
    assert router.env == {}


def test_rdma_devices_are_those_of_the_command_line(make_sglang_plan):
    plan = make_sglang_plan(ib_devices=IbDevices(shared=("mlx5_0", "mlx5_1")))
    assert {needs.rdma_devices for needs in needs_of(plan)} == {("mlx5_0", "mlx5_1")}
    by_device = make_sglang_plan(ib_devices=IbDevices(by_device={0: ("mlx5_0",), 1: ("mlx5_3",)}))
    assert needs_of(by_device)[0].rdma_devices == ("mlx5_0", "mlx5_3")


def test_mooncake_over_tcp_needs_no_rdma(make_sglang_plan):
    assert all(needs.has_rdma for needs in needs_of(make_sglang_plan()))
    assert not any(needs.has_rdma for needs in needs_of(make_sglang_plan(backend="mooncake_tcp")))


def test_devices_are_those_that_processes_of_the_node_use(make_sglang_plan):
    assert needs_of(make_sglang_plan())[0].device_indices == tuple(range(8))


def test_a_model_of_a_hub_has_no_path_and_a_folder_where_it_will_lie(make_sglang_plan, make_topology):
    plan = make_sglang_plan()
    (argv,) = {each.argv for each in plan.processes if each.id == "prefill-0.0"}
    assert "/models/tiny" in argv
    hub = needs_of(_with_model(plan, "Qwen/Qwen3-8B"))[0]
    assert (hub.models, hub.hub_models, hub.hub_folder) == ((), ("Qwen/Qwen3-8B",), "~/.cache/huggingface")
    builtin = needs_of(_with_model(plan, Model(path="builtin:tiny").path))[0]
    assert (builtin.models, builtin.hub_models) == ((), ())


def _with_model(plan, path):
    from dataclasses import replace

    processes = tuple(
        replace(each, argv=tuple(path if word == "/models/tiny" else word for word in each.argv))
        for each in plan.processes
    )
    return replace(plan, processes=processes)


@pytest.mark.parametrize(
    ("argv", "packages"),
    [
        (("python", "-m", "sglang.launch_server"), ("sglang",)),
        (("python", "-c", "import os; from sglang_router.launch_router import main"), ("sglang_router",)),
        (("/usr/bin/serve", "--port", "1"), None),
        (("python", "serve.py"), ()),
    ],
)
def test_packages_are_those_that_python_must_find_first(argv, packages):
    assert packages_of(argv) == packages


def test_a_rehearsal_needs_no_accelerators_and_no_rdma():
    """Its processes are placed by devices that they don't see."""
    file = str(Path(__file__).parents[4] / "topologies" / "hetero_tp4_dp4.yaml")
    planned = plan_file(TopologySource(path=file, is_rehearsal=True))
    assert [(each.device_indices, each.has_rdma) for each in needs_of(planned.plan)] == [((), False)] * 2
