"""What `ssh` is told, read back by `ssh -G`: it alone knows what it makes of a file and of options."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from pdctl.executors.openssh_transport.settings import command_argv, connect_argv, settings_text, ssh_argv
from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_login import Asked
from pdctl.topology.model import Ssh


def _options(tmp_path: Path, ssh: Ssh, asked: Asked) -> dict[str, list[str]]:
    settings = tmp_path / "settings.conf"
    settings.write_text(settings_text(ssh, jump_socket="/j-%C"))
    argv = [*ssh_argv(asked, str(settings), "/run/s%1"), "-G", "--", asked.host]
    found: dict[str, list[str]] = {}
    for line in subprocess.run(argv, check=True, capture_output=True, text=True).stdout.splitlines():
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)
    return found


def test_the_topology_wins_over_the_operators_configuration(tmp_path):
    config = tmp_path / "my config"
    config.write_text(
        "Host gpu*\n  HostName 10.0.0.9\n  User carol\n  Port 2200\n  IdentityFile /keys/carol\n"
        "  StrictHostKeyChecking no\n  BatchMode no\n  ProxyJump way\n  KexAlgorithms curve25519-sha256\n"
        "  LocalForward 8080 localhost:80\n  RemoteCommand tmux\n  ForwardAgent yes\n"
    )
    ssh = Ssh(config=str(config), known_hosts="/etc/known hosts", keepalive_s=2.5, connect_timeout_s=0.2)
    asked = Asked(host="gpu1", user="bob", port=22, identity_file="/keys/my bob", proxy_jump="none")
    found = _options(tmp_path, ssh, asked)
    assert (found["hostname"], found["user"], found["port"]) == (["10.0.0.9"], ["bob"], ["22"])
    assert found["identityfile"] == ["/keys/my bob", "/keys/carol"]
    assert found["kexalgorithms"] == ["curve25519-sha256"]
    assert (found["serveraliveinterval"], found["connecttimeout"]) == (["3"], ["1"])
    assert (found["stricthostkeychecking"], found["batchmode"]) == (["true"], ["yes"])
    assert (found["forwardagent"], found["clearallforwardings"]) == (["no"], ["yes"])
    assert "proxyjump" not in found
    assert "remotecommand" not in found
    assert "/etc/known hosts" in found["userknownhostsfile"][0]


def test_what_the_topology_leaves_open_is_the_operators(tmp_path):
    config = tmp_path / "config"
    config.write_text("User carol\nPort 2200\nProxyJump way\n")
    found = _options(tmp_path, Ssh(config=str(config)), Asked(host="gpu1"))
    assert (found["user"], found["port"], found["proxyjump"]) == (["carol"], ["2200"], ["way"])


def test_jump_hosts_get_keys_and_host_keys_from_the_same_file():
    """`ssh` hands a jump host's process the file, and no option."""
    text = settings_text(Ssh(identity_file="~/.ssh/cluster", known_hosts="/k"), jump_socket="/j-%C")
    assert 'IdentityFile "~/.ssh/cluster"\nUserKnownHostsFile "/k"\n' in text
    assert text.endswith('Include "~/.ssh/config"\nInclude "/etc/ssh/ssh_config"\n')


@pytest.mark.parametrize("path", ['/a"b', "/a\nb", "/a\\b"])
def test_a_path_that_would_end_its_own_quotes_is_refused(path):
    with pytest.raises(UnreachableError, match="can't stand in a configuration"):
        settings_text(Ssh(known_hosts=path), jump_socket="/j-%C")


def test_a_host_is_never_read_as_an_option():
    argv = ssh_argv(Asked(host="-oProxyCommand=x"), "/s", "/c")
    assert connect_argv(argv, "-oProxyCommand=x")[-3:] == ["--", "-oProxyCommand=x", "exit"]
    assert command_argv(argv, "-oProxyCommand=x", "line")[-3:] == ["--", "-oProxyCommand=x", "line"]
