"""What a job asks Slurm for, as JSON and back. What is left open is left out; nothing in it is secret."""

from __future__ import annotations

from pdctl.fields import FieldError, Fields
from pdctl.plan.digest import Json
from pdctl.topology.slurm import Container, ContainerRuntime, HetGroup, Slurm, as_document

_RUNTIMES: dict[str, ContainerRuntime] = {"pyxis": "pyxis", "apptainer": "apptainer"}


def slurm_to_json(slurm: Slurm) -> dict[str, Json]:
    """By the names of the topology."""
    return as_document(slurm)


def slurm_from(fields: Fields) -> Slurm:
    container = fields.optional_object("container")
    return Slurm(
        job_name=fields.optional_text("job_name"),
        run_dir=fields.optional_text("run_dir"),
        node_dir=fields.optional_text("node_dir"),
        site=fields.optional_text("site"),
        partition=fields.optional_text("partition"),
        account=fields.optional_text("account"),
        qos=fields.optional_text("qos"),
        time_limit=fields.optional_text("time_limit"),
        reservation=fields.optional_text("reservation"),
        constraint=fields.optional_text("constraint"),
        exclude=_texts(fields, "exclude"),
        nodelist=_texts(fields, "nodelist"),
        exclusive=None if fields.values.get("exclusive") is None else fields.flag("exclusive"),
        cpus_per_node=fields.optional_integer("cpus_per_node"),
        memory=fields.optional_text("memory"),
        gres=fields.optional_text("gres"),
        gpus_per_node=fields.optional_text("gpus_per_node"),
        segment=fields.optional_integer("segment"),
        switches=fields.optional_text("switches"),
        het_groups=tuple(_het_group_from(each) for each in _objects(fields, "het_groups")),
        requeue=fields.flag("requeue"),
        no_kill=fields.flag("no_kill"),
        signal_lead_s=fields.optional_integer("signal_lead_s"),
        keep_on_failure=fields.flag("keep_on_failure"),
        sbatch_args=_texts(fields, "sbatch_args"),
        srun_args=_texts(fields, "srun_args"),
        container=None if container is None else _container_from(container),
        python=fields.text("python"),
        pdctl_python=fields.optional_text("pdctl_python"),
        command_timeout_s=fields.number("command_timeout_s"),
    )


def _het_group_from(fields: Fields) -> HetGroup:
    return HetGroup(
        nodes=fields.integer("nodes"),
        devices_per_node=fields.optional_integer("devices_per_node"),
        partition=fields.optional_text("partition"),
        constraint=fields.optional_text("constraint"),
        nodelist=_texts(fields, "nodelist"),
        gres=fields.optional_text("gres"),
        gpus_per_node=fields.optional_text("gpus_per_node"),
    )


def _container_from(fields: Fields) -> Container:
    runtime = _RUNTIMES.get(fields.text("runtime"))
    if runtime is None:
        raise FieldError(f"`runtime` of {fields.what} is {fields.text('runtime')!r:.80}")
    return Container(runtime=runtime, image=fields.text("image"), mounts=_texts(fields, "mounts"))


def _texts(fields: Fields, name: str) -> tuple[str, ...]:
    return fields.texts(name) if name in fields.values else ()


def _objects(fields: Fields, name: str) -> tuple[Fields, ...]:
    return fields.objects(name) if name in fields.values else ()
