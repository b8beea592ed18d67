"""Is the model there, and the same on every node?"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from pdctl.doctor.amounts import amount
from pdctl.doctor.facts import ModelFiles
from pdctl.doctor.majority import majority
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.needs import NodeNeeds
from pdctl.doctor.survey import Survey

MODEL = Topic("model")


def check_model_files(survey: Survey) -> Iterator[Finding]:
    """By names and sizes of files: contents would take as long to read as a start does."""
    copies: dict[str, dict[str, ModelFiles]] = defaultdict(dict)
    for needs, facts in survey.answered:
        for files in facts.models:
            if files.problem is None:
                copies[files.path][needs.name] = files
            else:
                yield MODEL.error(
                    needs.name,
                    "PD721",
                    f"`{files.path}`: {files.problem}",
                    help="copy the model there, mount it, or correct `model.path`",
                )
        yield from _elsewhere(needs)
    for path, copy_on in copies.items():
        yield from _compare(path, copy_on)


def _elsewhere(needs: NodeNeeds) -> Iterator[Finding]:
    for name in needs.builtin_models:
        yield MODEL.skipped(
            needs.name, f"`{name}` is fetched before the first start where it is not there yet"
        )
    for name in needs.hub_models:
        yield MODEL.skipped(needs.name, f"`{name}` comes from a hub, each node fetches its own copy")


def _compare(path: str, copy_on: dict[str, ModelFiles]) -> Iterator[Finding]:
    usual, others = majority({node: files.fingerprint for node, files in copy_on.items()})
    right = next(files for files in copy_on.values() if files.fingerprint == usual)
    for node, files in copy_on.items():
        if node in others:
            yield MODEL.error(
                node,
                "PD722",
                f"`{path}` has {_extent(files)}, on other nodes {_extent(right)}",
                notes=("names and sizes of files were compared",),
                help="copy the model anew: a copy that was cut off looks like this",
            )
        else:
            yield MODEL.ok(node, f"{_extent(files)}")


def _extent(files: ModelFiles) -> str:
    return f"{files.num_files} {'file' if files.num_files == 1 else 'files'} of {amount(files.num_bytes)}"
