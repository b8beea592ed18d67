"""Is there shared memory for the ranks of an instance?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.amounts import GIB, amount
from pdctl.doctor.facts import SHARED_MEMORY_PATH
from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

SHARED_MEMORY = Topic("shared memory")
GOOD_BYTES = GIB
_HELP = (
    "remount it larger (`mount -o remount,size=16G /dev/shm`), a container with `--shm-size` or `--ipc=host`"
)


def check_shared_memory(survey: Survey) -> Iterator[Finding]:
    """How much is needed depends on ranks, channels and NVLink, so too little is no more than a warning."""
    for needs, facts in survey.answered:
        for folder in facts.folders:
            if folder.path != SHARED_MEMORY_PATH:
                continue
            if folder.problem is not None:
                text = f"`{SHARED_MEMORY_PATH}` {folder.problem}"
                yield SHARED_MEMORY.error(needs.name, "PD704", text, help=_HELP)
            elif folder.free_bytes < GOOD_BYTES:
                free, total = amount(folder.free_bytes), amount(folder.total_bytes)
                yield SHARED_MEMORY.warning(
                    needs.name,
                    "PD704",
                    f"`{SHARED_MEMORY_PATH}` has {free} free of {total}",
                    notes=("ranks of one node pass data through it; NCCL ends when it is full",),
                    help=_HELP,
                )
            else:
                yield SHARED_MEMORY.ok(needs.name, f"{amount(GOOD_BYTES)} or more free")
