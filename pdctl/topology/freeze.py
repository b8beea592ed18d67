"""A topology as text that says the same on any machine and on any day: what a job carries with it.

Profile, `--set`, environment, ranges of hosts and the site's profile are applied already; relative paths have
become absolute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from pdctl.topology.model import Topology
from pdctl.topology.slurm import NO_SITE, as_document
from pdctl.topology.tree import Value, is_private


def frozen(document: Value, topology: Topology) -> str:
    """JSON that loads to `topology`; `document` is what it was loaded from (`Loaded.document`)."""
    assert isinstance(document, dict), "a topology is a mapping"
    text = json.dumps(_with_anchors(_public(document), topology), indent=1, ensure_ascii=False)
    # Whatever still looks like a reference is meant as it stands.
    return text.replace("${", "$${") + "\n"


def _with_anchors(document: dict[str, Value], topology: Topology) -> dict[str, Value]:
    """Paths that were relative to a file or a folder of the operator's, and what the site has added: nodes
    may see another profile, or none.
    """
    found = dict(document)
    found["model"] = _over(document.get("model"), {"path": topology.model.path})
    slurm = topology.cluster.slurm
    if slurm is not None:
        section = as_document(replace(slurm, site=NO_SITE))
        found["cluster"] = _over(document.get("cluster"), {"slurm": section})
    return found


def _over(value: Value, stated: Mapping[str, Value]) -> dict[str, Value]:
    return {**_table(value), **{name: each for name, each in stated.items() if each is not None}}


def _table(value: Value) -> dict[str, Value]:
    return value if isinstance(value, dict) else {}


def _public(value: dict[str, Value]) -> dict[str, Value]:
    """Without `x-` keys, which are the user's own and may hold anything."""
    return {name: _public_value(each) for name, each in value.items() if not is_private(name)}


def _public_value(value: Value) -> Value:
    if isinstance(value, dict):
        return _public(value)
    return [_public_value(each) for each in value] if isinstance(value, list) else value
