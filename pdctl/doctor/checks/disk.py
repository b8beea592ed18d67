"""Is there room for logs, temporary files and fetched models?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.amounts import GIB, MIB, amount
from pdctl.doctor.facts import SHARED_MEMORY_PATH, Folder
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

DISK = Topic("disk")
LEAST_BYTES = 64 * MIB  # an engine's own start writes this much: compiled kernels, logs
GOOD_BYTES = GIB
_HELP = "free some space there, or place runs elsewhere (`state_dir`)"


def check_disk(survey: Survey) -> Iterator[Finding]:
    for needs, facts in survey.answered:
        folders = [folder for folder in facts.folders if folder.path != SHARED_MEMORY_PATH]
        faults = [fault for folder in folders if (fault := _fault(needs.name, folder)) is not None]
        yield from faults or (DISK.ok(needs.name, f"{amount(GOOD_BYTES)} or more free"),)


def _fault(node: str, folder: Folder) -> Finding | None:
    if folder.problem is not None:
        return DISK.error(node, "PD702", f"`{folder.path}` {folder.problem}", help=_HELP)
    if folder.free_bytes >= GOOD_BYTES:
        return None
    text = f"`{folder.path}` has {amount(folder.free_bytes)} free of {amount(folder.total_bytes)}"
    say = DISK.error if folder.free_bytes < LEAST_BYTES else DISK.warning
    return say(node, "PD702", text, help=_HELP)
