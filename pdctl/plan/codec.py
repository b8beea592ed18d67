"""The launch plan as JSON and back; `schemas/plan.schema.json` describes the form."""

from __future__ import annotations

from pdctl.fields import FieldError, Fields, parse_fields
from pdctl.plan.digest import Json
from pdctl.plan.login import host_ssh_from, host_ssh_to_json, ssh_from, ssh_to_json
from pdctl.plan.model import (
    PLAN_FORMAT,
    Endpoint,
    Instance,
    LaunchPlan,
    PlanNode,
    PortClaim,
    Probe,
    ProcessSpec,
    RoleKind,
)
from pdctl.plan.submission import slurm_from, slurm_to_json
from pdctl.topology.model import HostSsh


def plan_to_json(plan: LaunchPlan) -> dict[str, Json]:
    """Plain values, in reading order; ports are an object by name, as people look them up."""
    document: dict[str, Json] = {
        "format": plan.format,
        "name": plan.name,
        "executor": plan.executor,
        "digest": plan.digest,
        "topology_digest": plan.topology_digest,
        "served_model": plan.served_model,
        "canary": plan.canary,
        "nodes": [_node_to_json(node) for node in plan.nodes],
        "instances": [_instance_to_json(instance) for instance in plan.instances],
        "processes": [process_to_json(process) for process in plan.processes],
    }
    if plan.ssh is not None:
        document["ssh"] = ssh_to_json(plan.ssh)
    if plan.slurm is not None:
        document["slurm"] = slurm_to_json(plan.slurm)
    return document


def plan_from_json(text: bytes) -> LaunchPlan:
    """Read a recorded plan. `FieldError` when it is damaged or of a format that this version doesn't know."""
    fields = parse_fields("the plan", text)
    if fields.integer("format") != PLAN_FORMAT:
        raise FieldError(f"the plan has format {fields.integer('format')}, this version reads {PLAN_FORMAT}")
    return LaunchPlan(
        name=fields.text("name"),
        executor=fields.text("executor"),
        digest=fields.text("digest"),
        topology_digest=fields.text("topology_digest"),
        served_model=fields.text("served_model"),
        canary=fields.flag("canary"),
        nodes=tuple(_node_from(node) for node in fields.objects("nodes")),
        instances=tuple(_instance_from(each) for each in fields.objects("instances")),
        processes=tuple(_process_from(each) for each in fields.objects("processes")),
        ssh=None if (ssh := fields.optional_object("ssh")) is None else ssh_from(ssh),
        slurm=None if (slurm := fields.optional_object("slurm")) is None else slurm_from(slurm),
    )


def _node_to_json(node: PlanNode) -> Json:
    login = host_ssh_to_json(node.ssh)
    return {"name": node.name, "address": node.address, **({"ssh": login} if login else {})}


def _node_from(fields: Fields) -> PlanNode:
    login = fields.optional_object("ssh")
    return PlanNode(
        name=fields.text("name"),
        address=fields.text("address"),
        ssh=HostSsh() if login is None else host_ssh_from(login),
    )


def _instance_to_json(instance: Instance) -> Json:
    return {
        "id": instance.id,
        "role": instance.role.value,
        "process_ids": list(instance.process_ids),
        "http": _endpoint_to_json(instance.http),
        "bootstrap": None if instance.bootstrap is None else _endpoint_to_json(instance.bootstrap),
    }


def _instance_from(fields: Fields) -> Instance:
    bootstrap = fields.optional_object("bootstrap")
    return Instance(
        id=fields.text("id"),
        role=_role(fields),
        process_ids=fields.texts("process_ids"),
        http=_endpoint_from(fields.object("http")),
        bootstrap=None if bootstrap is None else _endpoint_from(bootstrap),
    )


def _endpoint_to_json(endpoint: Endpoint) -> Json:
    return {"host": endpoint.host, "port": endpoint.port}


def _endpoint_from(fields: Fields) -> Endpoint:
    return Endpoint(host=fields.text("host"), port=fields.integer("port"))


def process_to_json(process: ProcessSpec) -> Json:
    return {
        "id": process.id,
        "instance_id": process.instance_id,
        "role": process.role.value,
        "node": process.node,
        "node_rank": process.node_rank,
        "device_indices": list(process.device_indices),
        "argv": list(process.argv),
        "env": dict(process.env),
        "listen": process.listen,
        "ports": {claim.name: claim.port for claim in process.ports},
        "after": list(process.after),
        "ready": None if process.ready is None else _probe_to_json(process.ready),
        "grace_s": process.grace_s,
        "prepare": list(process.prepare),
        "requests_metric": process.requests_metric,
        "digest": process.digest,
    }


def _process_from(fields: Fields) -> ProcessSpec:
    ready = fields.optional_object("ready")
    ports = fields.object("ports")
    return ProcessSpec(
        id=fields.text("id"),
        instance_id=fields.text("instance_id"),
        role=_role(fields),
        node=fields.text("node"),
        node_rank=fields.integer("node_rank"),
        device_indices=_integers(fields, "device_indices"),
        argv=fields.texts("argv"),
        env=fields.text_map("env"),
        listen=fields.text("listen"),
        ports=tuple(PortClaim(name=name, port=ports.integer(name)) for name in ports.values),
        after=fields.texts("after"),
        ready=None if ready is None else _probe_from(ready),
        grace_s=fields.number("grace_s"),
        prepare=fields.texts("prepare"),
        requests_metric=fields.optional_text("requests_metric"),
        digest=fields.text("digest"),
    )


def _probe_to_json(probe: Probe) -> Json:
    return {
        "host": probe.host,
        "port": probe.port,
        "path": probe.path,
        "deadline_s": probe.deadline_s,
        "timeout_s": probe.timeout_s,
    }


def _probe_from(fields: Fields) -> Probe:
    return Probe(
        host=fields.text("host"),
        port=fields.integer("port"),
        path=fields.text("path"),
        deadline_s=fields.number("deadline_s"),
        timeout_s=fields.number("timeout_s"),
    )


def _role(fields: Fields) -> RoleKind:
    try:
        return RoleKind(fields.text("role"))
    except ValueError as error:
        raise FieldError(f"`role` of {fields.what} is {fields.text('role')!r:.80}") from error


def _integers(fields: Fields, name: str) -> tuple[int, ...]:
    found = fields.items(name)
    integers = tuple(each for each in found if isinstance(each, int) and not isinstance(each, bool))
    if len(integers) != len(found):
        raise FieldError(f"`{name}` of {fields.what} is {found!r:.80}")
    return integers
