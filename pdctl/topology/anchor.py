"""Relative paths made absolute: processes run in folders of their own, and other verbs run elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pdctl.topology.model import Cluster, Host, Ssh, Topology
from pdctl.topology.slurm import NO_SITE, Slurm
from pdctl.topology.source import DocumentPath

RELATIVE_STARTS = ("./", "../", "~/")
STDIN = "-"
OWN_SSH_CONFIG = "~/.ssh/config"


def anchored(topology: Topology, file: str) -> Topology:
    """Paths count from the folder of `file`, or from the working directory when they come from `--set` or
    standard input.

    Of the model, `./m` and `../m` do, and `~/m` counts from the operator's home; others, such as `org/name`,
    stay. Of SSH files all do; `~` stays, so that it is the home of whichever operator reads the plan. Of
    Slurm's folders all do, and `~` is the home of who submits: the job runs as that user.
    """

    def folder_of(*place: str | int) -> Path:
        span = topology.source.value(*place)
        is_typed = file == STDIN or (span is not None and span.file == "--set")
        return Path.cwd() if is_typed else Path(file).absolute().parent

    return replace(
        topology,
        model=replace(topology.model, path=_model_path(topology.model.path, folder_of)),
        cluster=_anchored_cluster(topology.cluster, folder_of),
    )


_FolderOf = Callable[..., Path]  # of the place in the document that names a path


def _model_path(path: str, folder_of: _FolderOf) -> str:
    if not path.startswith(RELATIVE_STARTS):
        return path
    absolute = Path(path).expanduser() if path.startswith("~") else folder_of("model", "path") / path
    return str(absolute.resolve())


def _anchored_cluster(cluster: Cluster, folder_of: _FolderOf) -> Cluster:
    nodes = cluster.nodes
    return replace(
        cluster,
        ssh=None if cluster.ssh is None else _anchored_ssh(cluster.ssh, folder_of),
        slurm=None if cluster.slurm is None else _anchored_slurm(cluster.slurm, folder_of),
        nodes=nodes
        if isinstance(nodes, int)
        else tuple(_anchored_host(host, index, folder_of) for index, host in enumerate(nodes)),
    )


def _anchored_ssh(ssh: Ssh, folder_of: _FolderOf) -> Ssh:
    def absolute(path: str | None, key: str) -> str | None:
        return _ssh_path(path, ("cluster", "ssh", key), folder_of)

    return replace(
        ssh,
        identity_file=absolute(ssh.identity_file, "identity_file"),
        # Naming the default changes nothing: it may be absent, and the system's configuration counts too.
        config=None if ssh.config == OWN_SSH_CONFIG else absolute(ssh.config, "config"),
        known_hosts=absolute(ssh.known_hosts, "known_hosts"),
    )


def _anchored_slurm(slurm: Slurm, folder_of: _FolderOf) -> Slurm:
    def absolute(path: str | None, *key: str) -> str | None:
        if path is None:
            return None
        return str((folder_of("cluster", "slurm", *key) / Path(path).expanduser()).resolve())

    container = slurm.container
    if container is not None and container.image.startswith(RELATIVE_STARTS):
        image = absolute(container.image, "container", "image")
        container = replace(container, image=image or container.image)
    return replace(
        slurm,
        run_dir=absolute(slurm.run_dir, "run_dir"),
        site=NO_SITE if slurm.site == NO_SITE else absolute(slurm.site, "site"),
        container=container,
    )


def _anchored_host(host: Host, index: int, folder_of: _FolderOf) -> Host:
    place = ("cluster", "nodes", index, "ssh", "identity_file")
    return replace(
        host, ssh=replace(host.ssh, identity_file=_ssh_path(host.ssh.identity_file, place, folder_of))
    )


def _ssh_path(path: str | None, place: DocumentPath, folder_of: _FolderOf) -> str | None:
    if path is None or path.startswith(("/", "~")):
        return path
    return str((folder_of(*place) / path).resolve())
