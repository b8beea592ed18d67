"""Numbers that testbeds on this machine claim: ports, addresses and networks of each follow from its number.

A claim is a folder with the number's name. It appears and goes in one step, so two processes never have the
same one, and whoever looks at a claim may find that it is gone.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.hosts.process_id import start_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """Those of one kind of testbed. In memory, so that none outlives the machine."""

    folder: Path
    numbers: range

    def place(self, number: int) -> Path:
        return self.folder / str(number)

    def take(
        self, base: Path, *, is_kept: bool, is_free: Callable[[int], bool] = lambda _: True
    ) -> int | None:
        """A number for the testbed at `base`, None where all are taken.

        Unless kept, it is abandoned with the end of this process.
        """
        owner = None if is_kept else [os.getpid(), start_ticks(os.getpid())]
        fresh = self._unnumbered("fresh")
        fresh.mkdir(parents=True)
        (fresh / "claim.json").write_text(json.dumps({"base": str(base), "owner": owner}))
        for number in filter(is_free, self.numbers):
            with contextlib.suppress(OSError):  # a claim lies there already
                fresh.rename(self.place(number))
                return number
        shutil.rmtree(fresh)
        return None

    def give_back(self, number: int) -> None:
        """With all that lies in its folder. Two that find the same abandoned one may both do so."""
        gone = self._unnumbered("gone")
        with contextlib.suppress(FileNotFoundError):
            self.place(number).rename(gone)
            shutil.rmtree(gone)

    def at(self, base: Path) -> list[int]:
        return [number for number, kept in self._all() if kept["base"] == str(base)]

    def abandoned(self) -> list[tuple[int, Path]]:
        """With their bases: whoever made them was killed before it could take them down."""
        return [(number, Path(kept["base"])) for number, kept in self._all() if _is_dead(kept["owner"])]

    def _all(self) -> Iterator[tuple[int, dict]]:
        for folder in sorted(self.folder.iterdir()) if self.folder.is_dir() else ():
            if folder.name.isdigit():
                try:
                    kept = json.loads((folder / "claim.json").read_text())
                except FileNotFoundError:  # given back meanwhile
                    continue
                yield int(folder.name), kept

    def _unnumbered(self, word: str) -> Path:
        return self.folder / f"{word}-{os.getpid()}-{os.urandom(4).hex()}"


def _is_dead(owner: object) -> bool:
    return isinstance(owner, list) and owner[1] != start_ticks(owner[0])
