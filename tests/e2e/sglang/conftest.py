"""Released SGLang for the tests: the testbed, and the parsers of its versions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

TESTBED = Path(__file__).parents[2] / "testbed" / "sglang_cpu"
SERVED_VERSION = "0.5.23"


@dataclass(frozen=True)
class Testbed:
    python: Path  # of an environment with `SERVED_VERSION`
    sources: dict[str, Path]  # other versions, for their parsers


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
class Parsed:
    """What SGLang made of a command line, or why it refused it."""

    error: str | None
    values: dict[str, object]


class RealParser:
    """The parser of one version in a process of its own; its first line tells what there is."""

    def __init__(self, python: Path, source: Path | None, log: Path) -> None:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SGL")}
        environ |= {"HF_HUB_OFFLINE": "1"}
        if source is not None:
            environ["PYTHONPATH"] = str(source)
        self.log = log
        self.process = subprocess.Popen(
            [python, TESTBED / "parse.py"],
            env=environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("w"),
            text=True,
        )
        first = self._read()
        self.flags = frozenset(first["flags"])
        self.variables = frozenset(first["variables"])

    def ask(self, argv: Sequence[str], *, env: Mapping[str, str] | None, resolve: bool) -> Parsed:
        """`argv` without the interpreter and the module."""
        assert self.process.stdin is not None
        asked = {"argv": list(argv), "env": dict(env or {}), "resolve": resolve}
        self.process.stdin.write(json.dumps(asked) + "\n")
        self.process.stdin.flush()
        answer = self._read()
        return Parsed(error=answer.get("error"), values=answer.get("values", {}))

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)

    def _read(self) -> dict:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"SGLang's parser ended: {self.log.read_text()[-2000:]}"
        return json.loads(line)


@pytest.fixture(scope="session")
def real_parser(
    testbed: Testbed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], RealParser]]:
    """`real_parser("0.5.9")` is the parser of that version."""
    folder = tmp_path_factory.mktemp("parsers")
    parsers: dict[str, RealParser | AssertionError] = {}

    def start(version: str) -> RealParser | AssertionError:
        source = None if version == SERVED_VERSION else testbed.sources[version]
        try:
            return RealParser(testbed.python, source, folder / f"{version}.log")
        except AssertionError as error:
            return error

    def parser(version: str) -> RealParser:
        """Starting one takes seconds, also one that fails: each is tried once."""
        if version not in parsers:
            parsers[version] = start(version)
        found = parsers[version]
        if isinstance(found, AssertionError):
            raise found
        return found

    yield parser
    for each in parsers.values():
        if isinstance(each, RealParser):
            each.close()
