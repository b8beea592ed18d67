"""Hosts that look odd and work: login shells, names, addresses, and ways there that a configuration tells."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import SSHD_LIMITS, HostSpec

pytestmark = pytest.mark.slow

TREE = Path(__file__).parents[3]
BOTH = pytest.mark.parametrize("transport", ["fabric", "openssh"])
NOISE = "echo welcome to $HOME; echo oops >&2; printf unfinished\n"
NUM_NAMES = 24  # of one host, whose sshd takes 10 newcomers at a time, and more only by luck


def _spec(files: dict[str, str] | None = None, **fields: object) -> HostSpec:
    """Folders on the way to pdctl's own stay once they are made, as with any program: they are there."""
    return HostSpec(files={"/root/.local/state/other": "of another program", **(files or {})}, **fields)


@pytest.fixture(scope="module")
def hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    hosts = make_hosts(
        plain=_spec(),
        noisy=_spec({"/root/.bashrc": NOISE, "/root/.bash_profile": NOISE}),
        cshy=_spec({"/root/.cshrc": "echo welcome to csh\n"}, login_shell="/usr/bin/tcsh"),
        fishy=_spec({"/root/.config/fish/config.fish": NOISE}, login_shell="/usr/bin/fish"),
        named=_spec(hostname="größe-節点"),
        six=_spec(),
        limited=_spec(sshd=SSHD_LIMITS),
        inner=_spec(),
        deeper=_spec(),
        renamed=_spec(),
        gate=_spec(),
    )
    # fish keeps records of its own, from the first time on.
    hosts["fishy"].console("env", "HOME=/root", "fish", "-c", "true")
    return hosts


@pytest.fixture(scope="module")
def config(hosts: HostSet) -> Path:
    """Of an operator who works at such a site. `inner` and `deeper` are names that only `gate` knows."""
    known = hosts.known_hosts.read_text().replace(f"renamed,{hosts['renamed'].address},", "its-old-name,")
    hosts.known_hosts.write_text(known)
    (hosts.base / "conf.d").mkdir()
    (hosts.base / "conf.d/site").write_text(
        "Host jumped\n  HostName inner\n  HostKeyAlias inner\n"
        f"Host tunnelled\n  HostName deeper\n  HostKeyAlias deeper\n"
        f"  ProxyCommand ssh -F {hosts.ssh_config} -W %h:%p gate\n"
        f'Match originalhost oddly exec "true"\n  HostName {hosts["renamed"].address}\n'
        "  HostKeyAlias its-old-name\n  User root\n"
        "Host crowd*\n  HostKeyAlias limited\n"
        f"  HostName {hosts['limited'].address}\n"
    )
    file = hosts.base / "config"
    # The first value counts, so what is special stands before what is for all.
    file.write_text(f"Include {hosts.base}/conf.d/*\nInclude {hosts.ssh_config}\n")
    return file


@pytest.fixture
def topology(tmp_path: Path, config: Path) -> Callable[..., Path]:
    def write(transport: str, nodes: dict[str, str], *, first: str) -> Path:
        others = [name for name in nodes if name != first]
        lines = "".join(f"  - {{name: {name}, {settings}}}\n" for name, settings in nodes.items())
        file = tmp_path / "t.yaml"
        file.write_text(
            "schema: pdctl/v1\nname: far\nmodel: {path: none}\nengine: {kind: dummy}\n"
            f"cluster:\n  executor: ssh\n  ssh: {{config: {config}, transport: {transport}}}\n"
            f"  nodes:\n{lines}"
            f"prefill: {{on: [{first}]}}\n"
            f"decode: {{instances: {len(others)}, on: [{', '.join(others)}]}}\n"
            f"router: {{on: {first}, python: {sys.executable}, env: {{PYTHONPATH: {TREE}}}}}\n"
            "health: {stop_grace_s: 1}\n"
        )
        return file

    return write


@BOTH
def test_odd_hosts_serve_and_are_left_as_they_were(operator, topology, hosts, left_behind, transport):
    at = {host.name: f"address: {host.address}" for host in hosts}
    nodes = {name: at[name] for name in ("plain", "noisy", "cshy", "fishy", "named")} | {
        "six": f"address: '{hosts['six'].address6}'",
        "inner": f"{at['inner']}, ssh: {{host: jumped, proxy_jump: gate}}",
        "deeper": f"{at['deeper']}, ssh: {{host: tunnelled}}",
        "renamed": f"{at['renamed']}, ssh: {{host: oddly}}",
    }
    ada = operator("ada")
    ada.pdctl("up", topology(transport, nodes, first="plain"), "--verify", "pairs")
    states = ada.states("far")
    assert (len(states), set(states.values())) == (10, {"ready"})
    logs = ada.pdctl("logs", "--name", "far", "--tail", "1")
    assert logs.count("dummy engine on ") == 9
    assert f"dummy engine on {hosts['six'].address6}:" in logs
    ada.pdctl("down", "far")
    assert left_behind() == []


@BOTH
def test_an_sshd_with_its_own_limits_lets_a_crowd_in(operator, topology, left_behind, transport):
    """One host under many names, each with a connection of its own, all at the same time."""
    nodes = {
        f"crowd{number}": f"address: 10.1.1.{number}, ssh: {{host: crowd{number}}}"
        for number in range(NUM_NAMES)
    }
    diff = operator("ada").pdctl("diff", topology(transport, nodes, first="crowd0"))
    assert f"{NUM_NAMES + 1} to create" in diff
    assert left_behind() == []
