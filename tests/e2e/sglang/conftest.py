"""Released SGLang for the tests: the testbed, and each of its versions to ask."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

TESTBED = Path(__file__).parents[2] / "testbed" / "sglang_cpu"
SERVED_VERSION = "0.5.23"


@dataclass(frozen=True)
class Testbed:
    python: Path  # of an environment with `SERVED_VERSION`
    sources: dict[str, Path]  # other versions, run by the same interpreter


@pytest.fixture(scope="session")
def testbed() -> Testbed:
    """Built on first use, in a minute; it lies in the user's cache."""
    install = [sys.executable, TESTBED / "install.py"]
    paths = json.loads(subprocess.run(install, check=True, stdout=subprocess.PIPE, timeout=580).stdout)
    return Testbed(
        python=Path(paths["python"]),
        sources={version: Path(place) for version, place in paths["sources"].items()},
    )


@dataclass(frozen=True)
class Answer:
    """What SGLang made of it, or why it refused."""

    error: str | None
    values: dict[str, Any]


class RealSglang:
    """One version in a process of its own, which starts at once and is waited for when it is asked."""

    def __init__(self, python: Path, source: Path | None, log: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SGL")}
        environ |= {"HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1", "OMP_NUM_THREADS": "1"}
        environ.pop("PYTHONPATH", None)
        if source is not None:
            environ["PYTHONPATH"] = str(source)
        self.log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                [python, TESTBED / "answer.py"],
                env=environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    @functools.cached_property
    def _told(self) -> dict[str, Any]:
        return self._read()

    @property
    def described_flags(self) -> list[dict[str, Any]]:
        """Every flag as its parser holds it."""
        return self._told["flags"]

    @functools.cached_property
    def flags(self) -> frozenset[str]:
        return frozenset(f"--{name}" for flag in self.described_flags for name in flag["spellings"])

    @functools.cached_property
    def variables(self) -> frozenset[str]:
        return frozenset(self._told["variables"])

    def ask(self, argv: Sequence[str], *, env: Mapping[str, str] | None = None, resolve: bool) -> Answer:
        """`argv` without the interpreter and the module."""
        return self._ask("resolve" if resolve else "parse", argv, env)

    def ports(self, argv: Sequence[str], *, env: Mapping[str, str]) -> Answer:
        return self._ask("ports", argv, env)

    def model(self, model_type: str, architecture: str) -> Answer:
        return self._ask("model", (model_type, architecture), None)

    def close(self) -> None:
        """One that nobody asked may still be starting."""
        self.process.kill()
        self.process.communicate()

    def _ask(self, question: str, arguments: Sequence[str], env: Mapping[str, str] | None) -> Answer:
        assert self._told
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({question: list(arguments), "env": dict(env or {})}) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        return Answer(error=answer.get("error"), values=answer.get("values", {}))

    def _read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"SGLang ended: {self.log.read_text()[-2000:]}"
        return json.loads(line)


@pytest.fixture(scope="session")
def real_parser(
    testbed: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RealSglang]]:
    """`real_parser("0.5.9")` is that version. Starting takes seconds, so all start when one is wanted."""
    folder = tmp_path_factory.mktemp("versions")
    sources = {SERVED_VERSION: None, **testbed.sources}
    running = {
        version: RealSglang(testbed.python, source, folder / f"{version}.log")
        for version, source in sources.items()
    }
    yield running.__getitem__
    for each in running.values():
        each.close()
