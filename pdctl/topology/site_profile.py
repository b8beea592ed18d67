"""Load a site profile: what one Slurm cluster wants and refuses. Strict, as topologies are.

A profile that can't be read, or has a key that nobody knows, is an error and never an absent profile: jobs
would go to another partition, under another account, with none of the site's settings.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast

from pdctl.diagnostics import DiagnosticError
from pdctl.resources import resource_path
from pdctl.topology.compose import compose
from pdctl.topology.decode_slurm import slurm_from
from pdctl.topology.schema import topology_schema
from pdctl.topology.schema_faults import FaultReport
from pdctl.topology.section import Section
from pdctl.topology.slurm import Slurm
from pdctl.topology.text import read_source
from pdctl.topology.tree import Table, flatten

GpuWay = Literal["gpus_per_node", "gres", "none"]
# Keys of `cluster.slurm` that say something about one deployment.
_OF_ONE_DEPLOYMENT = frozenset(("job_name", "site", "nodelist", "het_groups", "gres", "gpus_per_node"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteProfile:
    file: str
    name: str | None = None
    defaults: Slurm  # of these, only `stated` count
    stated: frozenset[str] = frozenset()  # keys of `defaults` that the profile has
    gpus: GpuWay | None = None
    gpu_type: str | None = None
    refuses: frozenset[str] = frozenset()  # keys of `cluster.slurm`
    requires: frozenset[str] = frozenset()


def load_site(path: str) -> SiteProfile:
    """Raises `DiagnosticError` with every fault of the file."""
    composed = compose(read_source(path))
    if composed.diagnostics:
        raise DiagnosticError(composed.diagnostics)
    if not isinstance(composed.tree, Table):
        raise DiagnosticError.one(
            "PD530",
            f"`{path}` is no site profile: it holds no mapping of keys",
            span=None if composed.tree is None else composed.tree.span,
            help="begin with `schema: pdctl-site/v1`",
        )
    flat = flatten(composed.tree)
    report = FaultReport(schema=site_schema(), source=flat.source, partial=False, what="a site profile")
    for error in _validator().iter_errors(flat.value):
        report.add(error)
    if faults := report.diagnostics():
        raise DiagnosticError(faults)
    return _profile(path, Section(flat.value))


@cache
def site_schema() -> dict[str, Any]:
    """`defaults` takes the keys of `cluster.slurm`, as the topology's own schema describes them."""
    schema = json.loads(resource_path("schemas", "site.schema.json").read_text(encoding="utf-8"))
    topology = topology_schema()
    slurm = topology["properties"]["cluster"]["properties"]["slurm"]
    known = {name: each for name, each in slurm["properties"].items() if name not in _OF_ONE_DEPLOYMENT}
    defaults = {
        **slurm,
        "title": "Defaults",
        "description": "Settings of `cluster.slurm` where the topology is silent; lists come before its own.",
        "properties": known,
    }
    return {**schema, "$defs": {**topology["$defs"], "slurm": defaults}}


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator  # a tenth of a second that other verbs shouldn't pay

    return Draft202012Validator(site_schema())


def _profile(path: str, section: Section) -> SiteProfile:
    defaults = section.section("defaults")
    return SiteProfile(
        file=path,
        name=section.text("name", None),
        defaults=slurm_from(defaults),
        stated=frozenset(name for name, _ in defaults.public()),
        gpus=cast(GpuWay | None, section.text("gpus", None)),
        gpu_type=section.text("gpu_type", None),
        refuses=frozenset(section.words("refuses")),
        requires=frozenset(section.words("requires")),
    )
