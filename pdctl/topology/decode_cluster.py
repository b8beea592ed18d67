"""The section `cluster`, from checked plain values to dataclasses."""

from __future__ import annotations

from typing import cast

from pdctl.topology.decode_slurm import slurm_from
from pdctl.topology.model import Cluster, Host, HostSsh, Ssh, SshTransport
from pdctl.topology.section import Section


def cluster_from(section: Section) -> Cluster:
    default = Cluster()
    nodes = (
        tuple(_host(Section(item)) for item in section.items("nodes"))
        if section.is_list("nodes")
        else section.integer("nodes", cast(int, default.nodes))
    )
    return Cluster(
        executor=section.text("executor", default.executor),
        nodes=nodes,
        ssh=_ssh(section.section("ssh")) if section.value("ssh") is not None else None,
        slurm=slurm_from(section.section("slurm")) if section.value("slurm") is not None else None,
        devices_per_node=section.integer("devices_per_node", default.devices_per_node),
    )


def _host(section: Section) -> Host:
    return Host(
        name=section.required_text("name"),
        address=section.text("address", None),
        devices=section.integer("devices", None),
        interface=section.text("interface", None),
        python=section.text("python", None),
        model_path=section.text("model_path", None),
        ssh=_host_ssh(section.section("ssh")),
        env=section.env(),
    )


def _ssh(section: Section) -> Ssh:
    default = Ssh()
    return Ssh(
        user=section.text("user", None),
        port=section.integer("port", None),
        identity_file=section.text("identity_file", None),
        proxy_jump=section.text("proxy_jump", None),
        config=section.text("config", None),
        known_hosts=section.text("known_hosts", None),
        transport=cast(SshTransport, section.text("transport", default.transport)),
        connect_timeout_s=section.number("connect_timeout_s", default.connect_timeout_s),
        command_timeout_s=section.number("command_timeout_s", None),
        keepalive_s=section.number("keepalive_s", default.keepalive_s),
        fan_out=section.integer("fan_out", default.fan_out),
        python=section.text("python", default.python),
        state_dir=section.text("state_dir", None),
    )


def _host_ssh(section: Section) -> HostSsh:
    return HostSsh(
        host=section.text("host", None),
        user=section.text("user", None),
        port=section.integer("port", None),
        identity_file=section.text("identity_file", None),
        proxy_jump=section.text("proxy_jump", None),
        python=section.text("python", None),
        state_dir=section.text("state_dir", None),
    )
