"""The shim's JSON answers as facts. `FieldError` where an answer is not what the shim gives."""

from __future__ import annotations

from pdctl.doctor.facts import (
    Clock,
    DeploymentHere,
    Devices,
    Folder,
    Gpu,
    GpuProcess,
    Limits,
    ModelFiles,
    NodeFacts,
    Package,
    ProgramFacts,
    RdmaDevice,
    RdmaPort,
)
from pdctl.doctor.needs import NodeNeeds
from pdctl.executors.answers import read_port
from pdctl.executors.calls import NodeReply, PortQuery
from pdctl.fields import Fields
from pdctl.state.lock import is_dead, owner_from_fields


def read_facts(reply: NodeReply, answer: Fields, needs: NodeNeeds) -> NodeFacts:
    devices = answer.optional_object("devices")
    queries = [
        PortQuery(node=needs.name, host=need.process.listen, port=need.claim.port) for need in needs.ports
    ]
    return NodeFacts(
        clock=_clock(reply, answer),
        machine=answer.text("machine"),
        python=answer.text("python"),
        limits=_limits(answer.object("limits")),
        folders=tuple(_folder(each) for each in answer.objects("folders")),
        programs=tuple(_program(each) for each in _part(answer, "programs")),
        ports=tuple(
            read_port(each, query) for each, query in zip(_part(answer, "ports"), queries, strict=False)
        ),
        deployments=tuple(_deployment(each) for each in _part(answer, "deployments")),
        devices=None if devices is None else _devices(devices),
        rdma=tuple(_rdma_device(each) for each in _part(answer, "rdma")),
        gpu_direct=answer.optional_text("gpu_direct"),
        models=tuple(
            _model(each, path) for each, path in zip(_part(answer, "models"), needs.models, strict=False)
        ),
    )


def _part(answer: Fields, name: str) -> tuple[Fields, ...]:
    """Empty when it was not asked for."""
    return answer.objects(name) if name in answer.values else ()


def _clock(reply: NodeReply, answer: Fields) -> Clock:
    """The node read its clock after we asked and before we had the answer: hard bounds, not an estimate.

    The larger of them holds whatever the request's own way took, so a slow start of Python widens the
    bounds and never shifts them.
    """
    return Clock(
        least_s=answer.number("answered_at") - reply.replied_at,
        most_s=answer.number("received_at") - reply.asked_at,
    )


def _limits(limits: Fields) -> Limits:
    return Limits(
        memlock_bytes=limits.optional_integer("memlock_bytes"),
        may_lock_all=limits.flag("may_lock_all"),
        open_files=limits.optional_integer("open_files"),
        open_files_hard=limits.optional_integer("open_files_hard"),
    )


def _folder(folder: Fields) -> Folder:
    return Folder(
        path=folder.text("path"),
        free_bytes=folder.integer("free_bytes"),
        total_bytes=folder.integer("total_bytes"),
        problem=folder.optional_text("problem"),
    )


def _program(program: Fields) -> ProgramFacts:
    packages = tuple(
        Package(name=each.text("name"), is_found=each.flag("is_found"), version=each.optional_text("version"))
        for each in program.objects("packages")
    )
    return ProgramFacts(
        version=program.optional_text("version"),
        problem=program.optional_text("problem"),
        packages=packages,
        is_late=program.flag("is_late"),
    )


def _deployment(deployment: Fields) -> DeploymentHere:
    return DeploymentHere(
        name=deployment.text("name"),
        alive=deployment.texts("alive"),
        orphaned=deployment.texts("orphaned"),
        leftover=deployment.texts("leftover"),
        holder=_living_holder(deployment.optional_object("holder")),
    )


def _living_holder(holder: Fields | None) -> str | None:
    """A lock of one who is provably dead is stale: the next operator takes it over."""
    if holder is None:
        return None
    owner = owner_from_fields(holder)
    return None if is_dead(owner) else owner.who


def _devices(devices: Fields) -> Devices:
    gpus = tuple(
        Gpu(
            index=each.integer("index"),
            uuid=each.text("uuid"),
            name=each.text("name"),
            driver=each.text("driver"),
            total_bytes=each.optional_integer("total_bytes"),
            used_bytes=each.optional_integer("used_bytes"),
        )
        for each in devices.objects("gpus")
    )
    processes = tuple(
        GpuProcess(
            uuid=each.text("uuid"),
            pid=each.integer("pid"),
            name=each.text("name"),
            used_bytes=each.optional_integer("used_bytes"),
            process=each.optional_text("process"),
        )
        for each in devices.objects("processes")
    )
    return Devices(problem=devices.optional_text("problem"), gpus=gpus, processes=processes)


def _rdma_device(device: Fields) -> RdmaDevice:
    ports = tuple(
        RdmaPort(
            number=each.integer("number"),
            state=each.text("state"),
            link_layer=each.text("link_layer"),
            has_gid=each.flag("has_gid"),
        )
        for each in device.objects("ports")
    )
    return RdmaDevice(name=device.text("name"), ports=ports)


def _model(model: Fields, path: str) -> ModelFiles:
    return ModelFiles(
        path=path,
        problem=model.optional_text("problem"),
        num_files=model.integer("num_files"),
        num_bytes=model.integer("num_bytes"),
        fingerprint=model.text("fingerprint"),
    )
