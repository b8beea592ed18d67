"""Are the RDMA devices of the plan there and up, and can they reach device memory?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.facts import NodeFacts, RdmaDevice, RdmaPort
from pdctl.doctor.majority import majority
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.survey import Survey

FABRIC = Topic("rdma")
ACTIVE = "ACTIVE"


def check_fabric(survey: Survey) -> Iterator[Finding]:
    for needs, facts in survey.answered:
        if not needs.has_rdma:
            yield FABRIC.skipped(needs.name, "KV cache doesn't go over RDMA there")
            continue
        faults = (*_missing(needs, facts), *_unusable(needs, facts), *_without_gpu_direct(needs, facts))
        yield from faults or (FABRIC.ok(needs.name, _described(needs, facts)),)
    yield from _differences(survey)


def _planned(needs: NodeNeeds, facts: NodeFacts) -> list[RdmaDevice]:
    """Those that the plan names; all where it leaves the choice to the backend."""
    return [each for each in facts.rdma if not needs.rdma_devices or each.name in needs.rdma_devices]


def _missing(needs: NodeNeeds, facts: NodeFacts) -> Iterator[Finding]:
    there = [device.name for device in facts.rdma]
    notes = (f"there are {', '.join(there)}",) if there else ("the kernel lists none at all",)
    for name in needs.rdma_devices:
        if name not in there:
            yield FABRIC.error(
                needs.name,
                "PD713",
                f"there is no RDMA device `{name}`",
                notes=notes,
                help="correct `transfer.ib_devices`, or load the device's driver",
            )
    if not needs.rdma_devices and not there:
        yield FABRIC.warning(
            needs.name,
            "PD713",
            "there is no RDMA device, and the transfer backend looks for one",
            help="load the devices' driver, or choose a backend that goes over TCP",
        )


def _unusable(needs: NodeNeeds, facts: NodeFacts) -> Iterator[Finding]:
    """A device with one good port will do; where no device is named, one good device will."""
    faults: dict[str, str] = {}
    for device in _planned(needs, facts):
        problems = [_problem(port) for port in device.ports] or ["it has no port"]
        if None not in problems:
            faults[device.name] = "; ".join(each for each in problems if each)
    if not needs.rdma_devices and len(faults) < len(facts.rdma):
        return
    for name, problem in faults.items():
        yield FABRIC.error(
            needs.name,
            "PD714",
            f"`{name}` can't carry data: {problem}",
            help="look at cable, switch and subnet manager; with RoCE the interface needs an address",
        )


def _problem(port: RdmaPort) -> str | None:
    if port.state != ACTIVE:
        return f"port {port.number} is {port.state or 'in no known state'}"
    return None if port.has_gid else f"port {port.number} has no address (GID)"


def _without_gpu_direct(needs: NodeNeeds, facts: NodeFacts) -> Iterator[Finding]:
    if needs.device_indices and needs.is_nvidia and facts.rdma and facts.gpu_direct is None:
        yield FABRIC.warning(
            needs.name,
            "PD716",
            "nothing was found that lets RDMA devices reach device memory",
            notes=("without it the registration of the KV pool fails, or data takes the way over the host",),
            help="`modprobe nvidia_peermem`, or install the open driver, which has dma-buf",
        )


def _differences(survey: Survey) -> Iterator[Finding]:
    layer_on = {
        needs.name: layers[0]
        for needs, facts in survey.answered
        if (layers := [port.link_layer for each in _planned(needs, facts) for port in each.ports])
    }
    usual, others = majority(layer_on)
    for node, layer in others.items():
        yield FABRIC.error(
            node,
            "PD715",
            f"its RDMA devices are {layer}, those of other nodes {usual}",
            notes=("the two can't talk to each other",),
            help="name devices of one kind under `transfer.ib_devices`",
        )


def _described(needs: NodeNeeds, facts: NodeFacts) -> str:
    names = ", ".join(device.name for device in _planned(needs, facts))
    return f"{names}, active" + (f", {facts.gpu_direct}" if facts.gpu_direct else "")
