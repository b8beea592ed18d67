"""Are the accelerators of the plan there, of one kind, under one driver, and free?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pdctl.doctor.amounts import amount
from pdctl.doctor.facts import Devices, Gpu
from pdctl.doctor.majority import majority
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.survey import Survey

DEVICES = Topic("devices")
MOST_USED_SHARE = 0.05  # the driver itself takes about one percent


def check_devices(survey: Survey) -> Iterator[Finding]:
    if not survey.scope.devices:
        return
    for needs, facts in survey.answered:
        if not needs.device_indices:
            yield DEVICES.skipped(needs.name, "the plan uses none there")
        elif facts.devices is None:
            yield DEVICES.skipped(needs.name, "only NVIDIA devices can be asked")
        elif facts.devices.problem is not None:
            yield _missing(needs.name, facts.devices.problem)
        else:
            faults = tuple(_faults(needs, facts.devices, survey.plan.name))
            yield from faults or (DEVICES.ok(needs.name, _described(_planned(needs, facts.devices))),)
    yield from _differences(survey)


def _planned(needs: NodeNeeds, devices: Devices) -> list[Gpu]:
    return [gpu for gpu in devices.gpus if gpu.index in needs.device_indices]


def _faults(needs: NodeNeeds, devices: Devices, deployment: str) -> Iterator[Finding]:
    planned = _planned(needs, devices)
    if len(planned) < len(needs.device_indices):
        yield _missing(
            needs.name,
            f"the plan uses device {needs.device_indices[-1]}, there are {len(devices.gpus)}",
        )
    for gpu in planned:
        yield from _in_use(needs.name, gpu, devices, deployment)


def _missing(node: str, text: str) -> Finding:
    return DEVICES.error(
        node, "PD709", text, help="correct `cluster.devices_per_node`, or look what the driver says (`dmesg`)"
    )


def _in_use(node: str, gpu: Gpu, devices: Devices, deployment: str) -> Iterator[Finding]:
    """Processes where the driver shows them; in a container it may show the memory alone."""
    on_it = [process for process in devices.processes if process.uuid == gpu.uuid]
    mine = [each for each in on_it if each.process and each.process.partition("/")[0] == deployment]
    others = [each for each in on_it if each not in mine]
    used = gpu.used_bytes or 0
    if others:
        holders = ", ".join(
            f"`{each.process}` of pdctl" if each.process else f"process {each.pid} (`{each.name}`)"
            for each in others
        )
    elif not mine and used > MOST_USED_SHARE * (gpu.total_bytes or used):
        holders = "processes that can't be seen from here"
    else:
        return
    yield DEVICES.warning(
        node,
        "PD710",
        f"{amount(used)} of device {gpu.index} are taken by {holders}",
        notes=("engines take most of a device's memory, and end when it isn't free",),
        help="stop them, or plan other devices",
    )


def _described(gpus: Sequence[Gpu]) -> str:
    """`8 x NVIDIA H200, driver 570.86, free`."""
    names = ", ".join(
        f"{sum(gpu.name == name for gpu in gpus)} x {name}"
        for name in dict.fromkeys(gpu.name for gpu in gpus)
    )
    return f"{names}, driver {gpus[0].driver}" if gpus else names


def _differences(survey: Survey) -> Iterator[Finding]:
    planned = {
        needs.name: gpus
        for needs, facts in survey.answered
        if facts.devices is not None and (gpus := _planned(needs, facts.devices))
    }
    usual, others = majority({node: gpus[0].name for node, gpus in planned.items()})
    for node, name in others.items():
        yield DEVICES.warning(
            node,
            "PD711",
            f"has {name}, other nodes have {usual}",
            notes=("an instance is as fast as its slowest device, and memory is planned for all alike",),
        )
    usual, others = majority({node: gpus[0].driver for node, gpus in planned.items()})
    for node, driver in others.items():
        yield DEVICES.warning(
            node,
            "PD712",
            f"has driver {driver}, other nodes have {usual}",
            notes=("NCCL and RDMA between different drivers fail in ways that are hard to read",),
            help="install one driver everywhere",
        )
