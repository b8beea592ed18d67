"""The section `cluster.slurm`, from checked plain values to dataclasses."""

from __future__ import annotations

from typing import cast

from pdctl.topology.section import Section
from pdctl.topology.slurm import Container, ContainerRuntime, HetGroup, Slurm


def slurm_from(section: Section) -> Slurm:
    default = Slurm()
    return Slurm(
        job_name=section.text("job_name", None),
        run_dir=section.text("run_dir", None),
        node_dir=section.text("node_dir", None),
        site=section.text("site", None),
        partition=section.text("partition", None),
        account=section.text("account", None),
        qos=section.text("qos", None),
        time_limit=section.word("time_limit"),
        reservation=section.text("reservation", None),
        constraint=section.text("constraint", None),
        exclude=section.words("exclude"),
        nodelist=section.words("nodelist"),
        exclusive=section.optional_flag("exclusive"),
        cpus_per_node=section.integer("cpus_per_node", None),
        memory=section.word("memory"),
        gres=section.text("gres", None),
        gpus_per_node=section.word("gpus_per_node"),
        segment=section.integer("segment", None),
        switches=section.word("switches"),
        het_groups=tuple(_het_group(Section(item)) for item in section.items("het_groups")),
        requeue=section.flag("requeue", default.requeue),
        no_kill=section.flag("no_kill", default.no_kill),
        signal_lead_s=section.integer("signal_lead_s", None),
        keep_on_failure=section.flag("keep_on_failure", default.keep_on_failure),
        sbatch_args=section.words("sbatch_args"),
        srun_args=section.words("srun_args"),
        container=_container(section.section("container"))
        if section.value("container") is not None
        else None,
        python=section.text("python", default.python),
        pdctl_python=section.text("pdctl_python", None),
        command_timeout_s=section.number("command_timeout_s", default.command_timeout_s),
    )


def _het_group(section: Section) -> HetGroup:
    return HetGroup(
        nodes=section.integer("nodes", 0),
        devices_per_node=section.integer("devices_per_node", None),
        partition=section.text("partition", None),
        constraint=section.text("constraint", None),
        nodelist=section.words("nodelist"),
        gres=section.text("gres", None),
        gpus_per_node=section.word("gpus_per_node"),
    )


def _container(section: Section) -> Container:
    return Container(
        runtime=cast(ContainerRuntime, section.required_text("runtime")),
        image=section.required_text("image"),
        mounts=section.words("mounts"),
    )
