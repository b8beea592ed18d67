from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pdctl.executors.fabric_transport.config import parse_options
from pdctl.executors.fabric_transport.config_blocks import ConfigBlocks
from pdctl.executors.shell import UnreachableError

TEXT = """\
# for all
Compression = yes
IdentityFile "~/.ssh/my key"
Host gpu1 gpu2
    HostName %h.cluster
    Port=2222
    IdentityFile ~/.ssh/two
    ProxyCommand nc -x "a b" %h %p
Host gpu* !gpu2
    User root
    Port 22
    ProxyJump gate
    HostName never-%h
Host "gpu3"
    User nobody
    User nobody-else
Host *
    ProxyJump last
    HostName plain-%%-%h
"""


@pytest.mark.parametrize("host", ["gpu1", "gpu2", "gpu3", "gpu", "else"])
def test_every_host_gets_what_ssh_itself_finds(host: str, tmp_path: Path):
    (tmp_path / "config").write_text(TEXT)
    said = subprocess.run(
        [shutil.which("ssh") or "ssh", "-G", "-F", tmp_path / "config", host], capture_output=True, check=True
    )
    theirs = parse_options(said.stdout.decode())
    ours = ConfigBlocks({"config": TEXT}).options(host)
    for name in ("hostname", "port", "user", "identityfile", "proxyjump", "proxycommand", "compression"):
        if name in ours:
            assert theirs.get(name) == ours[name], name
        else:
            assert name in ("port", "user", "proxyjump", "proxycommand"), name


def test_what_a_file_says_before_its_first_host_is_for_all_whatever_the_file_before_ends_with():
    blocks = ConfigBlocks({"mine": "Host gpu1\n  User root\n", "all": "Port 2222\n"})
    assert blocks.options("other") == {"port": ("2222",)}
    assert blocks.options("gpu1") == {"user": ("root",), "port": ("2222",)}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("Host a\n  Port\n", "line 2 of `config` is no setting"),
        ('\nHost "a\n', "line 2 of `config` has a quote without an end"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(text: str, fault: str):
    with pytest.raises(UnreachableError, match=fault) as caught:
        ConfigBlocks({"config": text})
    assert caught.value.code == "PD524"


def test_a_host_costs_no_look_at_the_blocks_of_a_thousand_others():
    """Counted in patterns that are tried: time would depend on the machine."""
    tried: list[str] = []

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            tried.append(str(other))
            return super().__eq__(other)

        __hash__ = str.__hash__

    text = "".join(f"Host n{number}\n  HostName 10.0.0.{number % 250}\n" for number in range(1000))
    assert ConfigBlocks({"config": text}).options(Name("n7")) == {"hostname": ("10.0.0.7",)}
    assert len(tried) < 10
