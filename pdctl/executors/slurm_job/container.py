"""A step in a container: the shim runs inside of it with the process that it holds.

Both runtimes leave a step the processes, network and devices of its node, so that the shim outside sees and
stops what runs inside. The folder of run directories is mounted at its own path.
"""

from __future__ import annotations

from collections.abc import Sequence

from pdctl.topology.slurm import Container


def container_options(container: Container | None, run_root: str) -> tuple[str, ...]:
    """Options of `srun` for its plugin pyxis."""
    if container is None or container.runtime != "pyxis":
        return ()
    mounts = ",".join([*container.mounts, f"{run_root}:{run_root}"])
    # Without the image's entry point: it could print, wait, or start something else.
    return (
        f"--container-image={container.image}",
        f"--container-mounts={mounts}",
        "--no-container-entrypoint",
    )


def in_container(container: Container | None, run_root: str, command: Sequence[str]) -> tuple[str, ...]:
    """The command of the step: with apptainer, that of the container around it."""
    if container is None or container.runtime != "apptainer":
        return tuple(command)
    mounts = [f"--bind={mount}" for mount in [*container.mounts, f"{run_root}:{run_root}"]]
    # `--nv` and `--rocm` only warn where there are no such devices.
    return ("apptainer", "exec", "--nv", "--rocm", *mounts, container.image, *command)
