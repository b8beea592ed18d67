"""`pdctl engine inspect`."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pdctl.resources import resource_path

Pdctl = Callable[..., Any]
SOURCE = """
class ServerArgs:
    def add_cli_args(parser):
        parser.add_argument("--page-size", type=int)
"""


@pytest.fixture
def wheel(tmp_path: Path) -> str:
    path = tmp_path / "sglang-0.5.99-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("sglang/srt/server_args.py", SOURCE)
    return str(path)


def test_a_wheels_flags_are_shown_to_people_and_programs(pdctl: Pdctl, wheel: str) -> None:
    shown = pdctl("engine", "inspect", "--wheel", wheel)
    assert (shown.code, shown.err) == (0, "")
    assert shown.out.splitlines()[-1] == "sglang 0.5.99: 1 flag in 1 spelling"
    table = json.loads(pdctl("engine", "inspect", "--wheel", wheel, "--json").out)
    assert table["flags"] == [{"name": "page-size", "type": "int"}]


def test_a_table_is_kept_where_checks_find_it(
    pdctl: Pdctl, wheel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "own"
    ran = pdctl("engine", "inspect", "--wheel", wheel, "--write", str(own))
    assert ran.out == f"{own / 'sglang' / '0.5.99.json'}\n"
    monkeypatch.setenv("PDCTL_FLAG_TABLES", str(own))
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: sglang, version: 0.5.99}\n"
        "transfer: {backend: mooncake}\nprefill: {}\ndecode: {args: {trust-remote-code: true}}\n"
    )
    told = json.loads(pdctl("validate", str(topology), "--json").out)
    assert "PD230" in {each["code"] for each in told["diagnostics"]}
    assert "PD237" not in {each["code"] for each in told["diagnostics"]}


def test_the_installed_router_is_read_as_it_ships(pdctl: Pdctl) -> None:
    import sys

    ran = pdctl("engine", "inspect", "sglang_router", "--python", sys.executable, "--json")
    shipped = resource_path("schemas", "sglang_router", "0.3.2.json").read_text(encoding="utf-8")
    assert json.loads(ran.out) == json.loads(shipped)


@pytest.mark.parametrize("words", [(), ("--python", "python3", "--wheel", "x.whl")])
def test_one_source_has_to_be_named(pdctl: Pdctl, words: tuple[str, ...]) -> None:
    ran = pdctl("engine", "inspect", *words)
    assert (ran.code, ran.out) == (1, "")
    assert "give one of --python PATH and --wheel FILE" in ran.err


def test_what_cannot_be_read_is_a_diagnostic(pdctl: Pdctl) -> None:
    ran = pdctl("engine", "inspect", "--wheel", "sglang-0.5.99-none.whl")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error[PD239]: the wheel `sglang-0.5.99-none.whl` can't be read")
