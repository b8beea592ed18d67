"""A topology as one cluster wants it: the site profile's defaults under it, and what the site refuses told.

Sites differ in what `sbatch` accepts (NVIDIA/srt-slurm, docs/slurm-faq.md): some refuse `--gpus-per-node` or
`--segment`, some insist on `--exclusive`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.executors.slurm_job.request import is_exclusive
from pdctl.fields import Fields
from pdctl.plan.submission import slurm_from, slurm_to_json
from pdctl.topology.model import Topology
from pdctl.topology.site_profile import GpuWay, SiteProfile, load_site
from pdctl.topology.slurm import NO_GRES, NO_SITE, HetGroup, Slurm

VARIABLE = "PDCTL_SITE"
EXECUTOR = "slurm"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    topology: Topology
    diagnostics: tuple[Diagnostic, ...] = ()


def settled(topology: Topology, environ: Mapping[str, str]) -> Settled:
    """`topology` with what the site profile adds, and everything that the site has against it.

    Nothing is settled where the executor isn't `slurm`, and where there is no profile or a faulty one.
    """
    if topology.cluster.executor != EXECUTOR:
        return Settled(topology=topology)
    slurm = topology.cluster.slurm or Slurm()
    file = site_file(slurm, environ)
    if file is None:
        return Settled(topology=topology)
    try:
        return apply_site(topology, load_site(file))
    except DiagnosticError as error:
        return Settled(topology=topology, diagnostics=error.diagnostics)


def site_file(slurm: Slurm, environ: Mapping[str, str]) -> str | None:
    """The file that is named, whether it exists or not; else the first that exists."""
    if slurm.site is not None:
        return None if slurm.site == NO_SITE else slurm.site
    if VARIABLE in environ:
        return environ[VARIABLE] or None
    config = environ.get("XDG_CONFIG_HOME") or f"{environ.get('HOME', '')}/.config"
    places = (f"{config}/pdctl/site.yaml", "/etc/pdctl/site.yaml")
    return next((place for place in places if Path(place).is_file()), None)


def apply_site(topology: Topology, site: SiteProfile) -> Settled:
    said = topology.cluster.slurm or Slurm()
    stated = _stated_keys(topology)
    faults = tuple(_faults(topology, _with_defaults(said, stated, site), stated, site))
    slurm = _as_wanted(_with_defaults(said, stated, site), stated, topology.cluster.devices_per_node, site)
    cluster = replace(topology.cluster, slurm=replace(slurm, site=str(Path(site.file).absolute())))
    return Settled(topology=replace(topology, cluster=cluster), diagnostics=faults)


def _stated_keys(topology: Topology) -> frozenset[str]:
    """Of `cluster.slurm`, those that the document itself has: a default of ours isn't the user's word."""
    return frozenset(
        str(path[2]) for path in topology.source.values if len(path) == 3 and path[:2] == ("cluster", "slurm")
    )


def _with_defaults(slurm: Slurm, stated: frozenset[str], site: SiteProfile) -> Slurm:
    """Lists of both are joined, the site's first; of all else the topology's own word counts."""
    own, defaults = slurm_to_json(slurm), slurm_to_json(site.defaults)
    added = {name: value for name, value in defaults.items() if name in site.stated - stated}
    merged = slurm_from(Fields("the settings of Slurm", {**own, **added}))
    return replace(
        merged,
        exclude=(*site.defaults.exclude, *slurm.exclude),
        sbatch_args=(*site.defaults.sbatch_args, *slurm.sbatch_args),
        srun_args=(*site.defaults.srun_args, *slurm.srun_args),
    )


def _as_wanted(slurm: Slurm, stated: frozenset[str], num_devices: int, site: SiteProfile) -> Slurm:
    """What the topology leaves open, in the site's way."""
    if "exclusive" not in stated:
        if "exclusive" in site.refuses:
            slurm = replace(slurm, exclusive=False)
        elif "exclusive" in site.requires:
            slurm = replace(slurm, exclusive=True)
    for key, change in _WITHOUT.items():
        if key in site.refuses and key not in stated:
            slurm = change(slurm)
    way = _gpu_way(site)
    groups = tuple(_group_with_gpus(group, num_devices, way, site) for group in slurm.het_groups)
    slurm = replace(slurm, het_groups=groups)
    if groups or slurm.gres is not None or slurm.gpus_per_node is not None:
        return slurm
    gres, gpus_per_node = _gpus(num_devices, way, site)
    return replace(slurm, gres=gres, gpus_per_node=gpus_per_node)


# What is asked for by default, and can be left away.
_WITHOUT: Mapping[str, Callable[[Slurm], Slurm]] = {
    "requeue": lambda slurm: replace(slurm, requeue=False),
    "no_kill": lambda slurm: replace(slurm, no_kill=False),
}


def _gpu_way(site: SiteProfile) -> GpuWay:
    if site.gpus is not None:
        return site.gpus
    if "gpus_per_node" not in site.refuses:
        return "gpus_per_node"
    return "none" if "gres" in site.refuses else "gres"


def _group_with_gpus(group: HetGroup, num_devices: int, way: GpuWay, site: SiteProfile) -> HetGroup:
    if group.gres is not None or group.gpus_per_node is not None:
        return group
    own = num_devices if group.devices_per_node is None else group.devices_per_node
    gres, gpus_per_node = _gpus(own, way, site)
    return replace(group, gres=gres, gpus_per_node=gpus_per_node)


def _gpus(num_devices: int, way: GpuWay, site: SiteProfile) -> tuple[str | None, str | None]:
    """`gres` and `gpus_per_node` for so many accelerators."""
    kind = "" if site.gpu_type is None else f"{site.gpu_type}:"
    if not num_devices or way == "none":
        return (NO_GRES, None)
    return (f"gpu:{kind}{num_devices}", None) if way == "gres" else (None, f"{kind}{num_devices}")


def _faults(
    topology: Topology, slurm: Slurm, stated: frozenset[str], site: SiteProfile
) -> Iterator[Diagnostic]:
    name = site.name or "this site"
    asked = slurm_to_json(slurm)
    for key in sorted(site.refuses):
        if key in stated and asked.get(key) not in (None, False, [], NO_GRES):
            yield _fault(topology, key, site, f"{name} refuses `{key}`", "remove it")
    for key in sorted(site.requires):
        if key == "exclusive":
            if key in stated and not is_exclusive(slurm):
                yield _fault(
                    topology, key, site, f"{name} takes only jobs that have nodes whole", "remove it"
                )
        elif asked.get(key) is None:
            yield _fault(
                topology, key, site, f"{name} takes no job without `{key}`", f"set `cluster.slurm.{key}`"
            )


def _fault(topology: Topology, key: str, site: SiteProfile, message: str, help: str) -> Diagnostic:
    path = ("cluster", "slurm", key)
    return Diagnostic(
        code="PD531",
        message=message,
        span=topology.source.value(*path),
        path=".".join(path),
        notes=(f"says the site profile `{site.file}`",),
        help=help,
    )
