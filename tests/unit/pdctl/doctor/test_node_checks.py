"""Each check on one node's answer: what is well, what is wrong and how bad it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.diagnostics import Diagnostic
from pdctl.doctor.checks.clock import check_clock
from pdctl.doctor.checks.devices import check_devices
from pdctl.doctor.checks.disk import check_disk
from pdctl.doctor.checks.fabric import check_fabric
from pdctl.doctor.checks.leftovers import check_leftovers
from pdctl.doctor.checks.limits import check_limits
from pdctl.doctor.checks.model_files import check_model_files
from pdctl.doctor.checks.ports import check_ports
from pdctl.doctor.checks.programs import check_programs
from pdctl.doctor.checks.reach import check_reach
from pdctl.doctor.checks.shared_memory import check_shared_memory
from pdctl.doctor.facts import (
    Clock,
    DeploymentHere,
    Devices,
    Folder,
    Gpu,
    GpuProcess,
    Limits,
    ModelFiles,
    Package,
    ProgramFacts,
    RdmaDevice,
    RdmaPort,
)
from pdctl.doctor.survey import BEFORE_UP

MIB = 1 << 20
GIB = 1 << 30


def told(findings, node="n2"):
    """Standing, code and text of what is said of one node."""
    return [(each.standing.value, each.code, each.text) for each in findings if each.node == node]


def test_a_healthy_node_passes_every_check(make_survey):
    survey = make_survey()
    for check in (check_reach, check_clock, check_disk, check_shared_memory, check_limits, check_programs):
        assert {each.standing.value for each in check(survey)} == {"ok"}
    for check in (check_model_files, check_leftovers, check_ports):
        assert {each.standing.value for each in check(survey)} == {"ok"}
    for check in (check_devices, check_fabric):
        assert {each.standing.value for each in check(survey)} == {"skipped"}


def test_a_node_that_cannot_be_reached_reads_like_the_others_that_can_not(make_survey):
    faults = {
        name: (Diagnostic(code="PD503", message=f"{name} can't be reached: timed out", help="mend it"),)
        for name in ("n2", "n3")
    }
    findings = list(check_reach(make_survey(faults=faults)))
    assert told(findings) == [("error", "PD503", "can't be reached: timed out")]
    assert told(findings, "n3") == told(findings)


@pytest.mark.parametrize(
    ("least_s", "most_s", "expected"),
    [
        (34.0, 34.4, ("warning", "PD701", "its clock is 34 s (± 0.2 s) ahead of this machine's")),
        (-34.4, -34.0, ("warning", "PD701", "its clock is 34 s (± 0.2 s) behind this machine's")),
        (1.0, 60.0, ("ok", None, "within 2 s of this machine's")),  # a slow answer proves nothing
    ],
)
def test_a_clock_is_wrong_only_when_that_is_certain(make_survey, least_s, most_s, expected):
    survey = make_survey(on={"n2": {"clock": Clock(least_s=least_s, most_s=most_s)}})
    assert told(check_clock(survey)) == [expected]


def test_clocks_of_two_nodes_may_be_too_far_apart_with_both_near_ours(make_survey):
    clocks = {"n1": Clock(least_s=-1.7, most_s=-1.6), "n2": Clock(least_s=1.5, most_s=1.6)}
    findings = list(check_clock(make_survey(on={name: {"clock": each} for name, each in clocks.items()})))
    assert told(findings) == [("warning", "PD701", "its clock is at least 3.1 s ahead of that of `n1`")]
    assert told(findings, "n1")[0][0] == "ok"


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ({"free_bytes": 12 * MIB}, ("error", "PD702", "`/tmp` has 12 MiB free of 50.0 GiB")),
        ({"free_bytes": 900 * MIB}, ("warning", "PD702", "`/tmp` has 900 MiB free of 50.0 GiB")),
        ({"problem": "can't be written to"}, ("error", "PD702", "`/tmp` can't be written to")),
    ],
)
def test_a_full_disk_is_an_error_and_a_nearly_full_one_a_warning(make_survey, folder, expected):
    full = Folder(**{"path": "/tmp", "free_bytes": GIB, "total_bytes": 50 * GIB, "problem": None, **folder})
    assert told(check_disk(make_survey(on={"n2": {"folders": (full,)}}))) == [expected]


def test_small_shared_memory_is_a_warning_with_its_size(make_survey):
    small = Folder(path="/dev/shm", free_bytes=64 * MIB, total_bytes=64 * MIB, problem=None)
    survey = make_survey(on={"n2": {"folders": (small,)}})
    expected = ("warning", "PD704", "`/dev/shm` has 64 MiB free of 64 MiB")
    assert told(check_shared_memory(survey)) == [expected]
    assert told(check_disk(survey))[0][0] == "ok"


def test_memory_to_lock_matters_for_rdma_alone_and_not_to_the_privileged(make_survey, make_sglang_plan):
    low = Limits(memlock_bytes=8 * MIB, may_lock_all=False, open_files=1024, open_files_hard=65536)
    assert told(check_limits(make_survey(on={"n2": {"limits": low}})))[0][0] == "ok"
    plan = make_sglang_plan()
    (finding,) = told(check_limits(make_survey(plan, on={"n2": {"limits": low}})))
    text = "processes may lock 8 MiB of memory, RDMA pins all that it transfers"
    assert finding == ("error", "PD705", text)
    may = replace(low, may_lock_all=True)
    assert told(check_limits(make_survey(plan, on={"n2": {"limits": may}})))[0][0] == "ok"
    roomy = replace(low, memlock_bytes=GIB)
    assert told(check_limits(make_survey(plan, on={"n2": {"limits": roomy}})))[0][0] == "warning"


def test_a_low_hard_limit_of_open_files_is_a_warning(make_survey):
    low = Limits(memlock_bytes=None, may_lock_all=False, open_files=1024, open_files_hard=4096)
    (finding,) = told(check_limits(make_survey(on={"n2": {"limits": low}})))
    assert finding == ("warning", "PD706", "processes may open 4096 files")


def program(problem=None, **versions):
    packages = tuple(
        Package(name=name, is_found=version is not None, version=version)
        for name, version in versions.items()
    )
    return {"programs": (ProgramFacts(version="3.11.7", problem=problem, packages=packages),)}


def test_an_interpreter_that_may_be_slow_only_is_a_warning(make_survey):
    late = ProgramFacts(version=None, problem="it does not start within 20 s", packages=(), is_late=True)
    expected = ("warning", "PD717", "`python3` could not be asked: it does not start within 20 s")
    assert told(check_programs(make_survey(on={"n2": {"programs": (late,)}}))) == [expected]


def test_an_interpreter_that_cannot_run_is_an_error(make_survey):
    broken = program("No such file or directory")
    expected = ("error", "PD717", "`python3` can't be run: No such file or directory")
    assert told(check_programs(make_survey(on={"n2": broken}))) == [expected]


def test_a_missing_package_is_an_error_with_the_command_that_installs_it(make_survey):
    (finding,) = [each for each in check_programs(make_survey(on={"n2": program(runtime=None)})) if each.code]
    assert (finding.code, finding.text) == ("PD718", "`python3` finds no package `runtime`")
    assert finding.help == "install it: `python3 -m pip install 'pdctl[runtime]'`"


def test_another_version_than_planned_is_a_warning_and_between_nodes_an_error(make_survey, make_sglang_plan):
    plan = make_sglang_plan()
    versions = {"n1": "0.5.23", "n2": "0.5.20", "n3": "0.5.23", "n4": "0.5.23"}
    on = {name: program(sglang=version) for name, version in versions.items()}
    findings = list(check_programs(make_survey(plan, on=on, versions={"sglang": "0.5.23"})))
    assert told(findings) == [
        ("warning", "PD719", "`python3` has sglang 0.5.20, the topology says 0.5.23"),
        ("error", "PD720", "has sglang 0.5.20, other nodes have 0.5.23"),
    ]
    assert told(findings, "n3") == [("ok", None, "Python 3.11.7, sglang 0.5.23")]


def files(**fields):
    usual = {"path": "/models/tiny", "problem": None, "num_files": 3, "num_bytes": GIB, "fingerprint": "f1"}
    return {"models": (ModelFiles(**{**usual, **fields}),)}


def test_a_missing_model_is_an_error_and_a_cut_off_copy_another(make_survey):
    missing = make_survey(on={"n2": files(problem="it does not exist", num_files=0)})
    assert told(check_model_files(missing)) == [("error", "PD721", "`/models/tiny`: it does not exist")]
    cut = make_survey(on={"n1": files(), "n2": files(num_bytes=5 * MIB, fingerprint="f2"), "n3": files()})
    text = "`/models/tiny` has 3 files of 5 MiB, on other nodes 3 files of 1.0 GiB"
    assert told(check_model_files(cut)) == [("error", "PD722", text)]
    assert told(check_model_files(cut), "n3") == [("ok", None, "3 files of 1.0 GiB")]


def gpus(number=8, name="NVIDIA H200", driver="570.86", used=0):
    return tuple(
        Gpu(
            index=index,
            uuid=f"GPU-{index}",
            name=name,
            driver=driver,
            total_bytes=141 * GIB,
            used_bytes=used,
        )
        for index in range(number)
    )


def devices(found=None, processes=(), problem=None):
    return {"devices": Devices(problem=problem, gpus=gpus() if found is None else found, processes=processes)}


def test_devices_are_counted_against_the_plan(make_survey, make_sglang_plan):
    plan = make_sglang_plan()
    everywhere = {name: devices() for name in ("n1", "n3", "n4")}
    fine = make_survey(plan, on={**everywhere, "n2": devices()})
    assert told(check_devices(fine)) == [("ok", None, "8 x NVIDIA H200, driver 570.86")]
    few = make_survey(plan, on={**everywhere, "n2": devices(gpus(4))})
    assert told(check_devices(few)) == [("error", "PD709", "the plan uses device 7, there are 4")]
    broken = make_survey(plan, on={**everywhere, "n2": devices((), problem="no `nvidia-smi`")})
    assert told(check_devices(broken)) == [("error", "PD709", "no `nvidia-smi`")]


def test_memory_that_others_hold_is_told_with_who_holds_it(make_survey, make_sglang_plan):
    taken = (replace(gpus(1)[0], used_bytes=70 * GIB), *gpus()[1:])

    def with_process(process):
        holder = GpuProcess(uuid="GPU-0", pid=4711, name="python", used_bytes=70 * GIB, process=process)
        return make_survey(make_sglang_plan(), on={"n2": devices(taken, (holder,))})

    stranger = told(check_devices(with_process(None)))
    text = "70.0 GiB of device 0 are taken by process 4711 (`python`)"
    assert stranger == [("warning", "PD710", text)]
    assert "`other/prefill-0.0` of pdctl" in told(check_devices(with_process("other/prefill-0.0")))[0][2]
    assert told(check_devices(with_process("test/prefill-0.1")))[0][0] == "ok"  # its own, while it runs
    unseen = make_survey(make_sglang_plan(), on={"n2": devices(taken)})
    assert "can't be seen from here" in told(check_devices(unseen))[0][2]


def test_other_models_and_drivers_than_most_nodes_have_are_warnings(make_survey, make_sglang_plan):
    on = {name: devices() for name in ("n1", "n3", "n4")}
    odd = devices(gpus(name="NVIDIA H100", driver="550.54"))
    findings = told(check_devices(make_survey(make_sglang_plan(), on={**on, "n2": odd})))
    assert findings[1:] == [
        ("warning", "PD711", "has NVIDIA H100, other nodes have NVIDIA H200"),
        ("warning", "PD712", "has driver 550.54, other nodes have 570.86"),
    ]


def rdma(name="mlx5_0", state="ACTIVE", link_layer="InfiniBand", has_gid=True):
    port = RdmaPort(number=1, state=state, link_layer=link_layer, has_gid=has_gid)
    return RdmaDevice(name=name, ports=(port,))


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ((), ("error", "PD713", "there is no RDMA device `mlx5_0`")),
        ((rdma(state="DOWN"),), ("error", "PD714", "`mlx5_0` can't carry data: port 1 is DOWN")),
        (
            (rdma(has_gid=False),),
            ("error", "PD714", "`mlx5_0` can't carry data: port 1 has no address (GID)"),
        ),
        (
            (rdma(link_layer="Ethernet"),),
            ("error", "PD715", "its RDMA devices are Ethernet, those of other nodes InfiniBand"),
        ),
    ],
)
def test_a_planned_rdma_device_must_be_there_and_up_and_like_the_others(
    make_survey, make_sglang_plan, found, expected
):
    from pdctl.topology.model import IbDevices

    plan = make_sglang_plan(ib_devices=IbDevices(shared=("mlx5_0",)))
    on = {name: {"rdma": (rdma(),), "gpu_direct": "dma-buf"} for name in ("n1", "n2", "n3", "n4")}
    assert told(check_fabric(make_survey(plan, on=on))) == [("ok", None, "mlx5_0, active, dma-buf")]
    on["n2"] = {"rdma": found, "gpu_direct": "dma-buf"}
    assert expected in told(check_fabric(make_survey(plan, on=on)))


def test_without_a_named_device_one_that_works_is_enough(make_survey, make_sglang_plan):
    mixed = {"rdma": (rdma(), rdma("mlx5_1", state="DOWN")), "gpu_direct": "nvidia_peermem"}
    assert told(check_fabric(make_survey(make_sglang_plan(), on={"n2": mixed})))[0][0] == "ok"
    dead = {"rdma": (rdma(state="DOWN"),), "gpu_direct": "nvidia_peermem"}
    assert told(check_fabric(make_survey(make_sglang_plan(), on={"n2": dead})))[0][:2] == ("error", "PD714")


def test_rdma_that_cannot_reach_device_memory_is_a_warning(make_survey, make_sglang_plan):
    survey = make_survey(make_sglang_plan(), on={"n2": {"rdma": (rdma(),), "gpu_direct": None}})
    assert told(check_fabric(survey))[0][:2] == ("warning", "PD716")


def test_processes_without_a_supervisor_and_a_held_lock_are_warnings(make_survey):
    here = DeploymentHere(
        name="test", alive=("decode-0.0",), orphaned=("decode-0.0",), leftover=(), holder="anna@login1"
    )
    assert told(check_leftovers(make_survey(on={"n2": {"deployments": (here,)}}))) == [
        ("warning", "PD707", "`decode-0.0` of `test` runs without its supervisor"),
        ("warning", "PD708", "`test` is being changed by anna@login1"),
    ]


def test_other_deployments_are_named_and_no_fault(make_survey):
    here = DeploymentHere(name="other", alive=("decode-0.0",), orphaned=(), leftover=(), holder="anna@login1")
    findings = told(check_leftovers(make_survey(on={"n2": {"deployments": (here,)}})))
    assert findings == [("ok", None, "runs `other`")]


def test_a_port_of_a_stranger_is_an_error_and_our_own_none(make_survey):
    from pdctl.doctor.needs import needs_of

    survey = make_survey()
    (answer,) = survey.facts["n2"].ports
    (need,) = needs_of(survey.plan)[1].ports

    def held(process):
        return make_survey(
            on={
                "n2": {"ports": (replace(answer, problem="taken", pid=77, command="nginx", process=process),)}
            }
        )

    stranger = told(check_ports(held(None)))
    assert stranger == [("error", "PD410", "port 30100 is taken by process 77 (`nginx`)")]
    assert told(check_ports(held(f"test/{need.process.id}"))) == [
        ("ok", None, "held by this very deployment")
    ]
    assert told(check_ports(held("test/prefill-7.0")))[0][:2] == ("error", "PD410")


def test_a_port_of_another_operators_doctor_is_no_fault(make_survey):
    survey = make_survey()
    (answer,) = survey.facts["n2"].ports
    command = (
        "/usr/bin/python3 -I -S /root/.local/state/pdctl/run/shim-12.py survey /root/.local/state/pdctl/run"
    )
    held = replace(answer, problem="taken", pid=77, command=command)
    findings = told(check_ports(make_survey(on={"n2": {"ports": (held,)}})))
    assert findings == [("skipped", None, "another doctor listens there for a moment")]


def test_what_was_not_asked_is_not_judged(make_survey):
    survey = make_survey(scope=replace(BEFORE_UP, ports=False))
    for check in (check_ports, check_leftovers, check_devices):
        assert list(check(survey)) == []
