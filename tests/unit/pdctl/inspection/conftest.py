"""Source trees from a few lines."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from textwrap import dedent

import pytest

from pdctl.inspection.modules import Modules


@dataclass(frozen=True, slots=True)
class Written:
    files: Mapping[str, str]

    @property
    def label(self) -> str:
        return "`written`"

    def read(self, path: str) -> bytes | None:
        text = self.files.get(path)
        return None if text is None else dedent(text).encode()


@pytest.fixture
def written() -> Callable[..., Modules]:
    """`written(**{"pkg.mod": "A = 1"})` as modules; `pkg.__init__` is the package itself."""

    def modules(**texts: str) -> Modules:
        return Modules(Written({f"{name.replace('.', '/')}.py": text for name, text in texts.items()}))

    return modules
