"""What our own reader finds and what `ssh -G` says must be the same, where the former is asked."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from pdctl.executors.fabric_transport.config import SshConfig, parse_options
from pdctl.executors.fabric_transport.connection import _Connection
from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_login import Asked, Operator, login_of

ME = Operator(user="me", home=str(Path.home()), machine="desk")
PLAIN = """\
Host gpu1
  HostName 10.0.0.1
  User root
  Port 2222
  IdentityFile ~/.ssh/one
  IdentitiesOnly yes
  HostKeyAlias fleet
Host gpu* !gpu9
  User ubuntu
  ProxyJump gate,me@second:22
Host *.example.org
  ProxyCommand nc %h %p
"""


def _login(config: SshConfig, host: str):
    return login_of(Asked(host=host), config.options(host), ME)


@pytest.mark.parametrize("host", ["gpu1", "gpu2", "gpu9", "a.example.org"])
def test_both_readers_give_the_same_login(tmp_path: Path, host: str):
    plain, matched = tmp_path / "plain", tmp_path / "matched"
    plain.write_text(PLAIN)
    # `Match` is beyond our own reader, so that `ssh` is asked.
    matched.write_text(f"{PLAIN}Match originalhost nobody\n  User nobody\n")
    ours = _login(SshConfig(str(plain), "/home/me"), host)
    theirs = _login(SshConfig(str(matched), "/home/me"), host)
    for field in ("host", "port", "host_key_name", "proxy_jump", "proxy_command", "identities_only"):
        assert getattr(ours, field) == getattr(theirs, field), field
    assert set(ours.identity_files) <= set(theirs.identity_files)


def test_included_files_count(tmp_path: Path):
    (tmp_path / "more").write_text("Host gpu1\n  HostName 10.0.0.1\n")
    (tmp_path / "config").write_text(f"Include {tmp_path}/more\n")
    assert _login(SshConfig(str(tmp_path / "config"), "/home/me"), "gpu1").host == "10.0.0.1"


def test_the_users_own_file_goes_before_the_machines(tmp_path: Path):
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/config").write_text("Host gpu1\n  HostName 10.0.0.1\n")
    assert _login(SshConfig(None, str(tmp_path)), "gpu1").host == "10.0.0.1"
    assert _login(SshConfig(None, str(tmp_path)), "gpu2").host == "gpu2"


def test_a_file_that_is_not_there_or_that_ssh_refuses_is_told(tmp_path: Path):
    with pytest.raises(UnreachableError, match="there is no file"):
        SshConfig(str(tmp_path / "none"), "/home/me").options("a")
    (tmp_path / "bad").write_text("Match nonsense\n  Port what\n")
    with pytest.raises(UnreachableError) as caught:
        SshConfig(str(tmp_path / "bad"), "/home/me").options("a")
    assert caught.value.code == "PD524"


def test_lines_of_ssh_become_options():
    assert parse_options("user me\nidentityfile a\nidentityfile b c\nproxyjump\n") == {
        "user": ("me",),
        "identityfile": ("a", "b c"),
        "proxyjump": ("",),
    }


def test_connections_share_fabrics_configuration_without_writing_to_it():
    """Else, one thread would find it empty while another makes a connection."""
    import fabric

    config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
    faults: list[Exception] = []

    def connect() -> None:
        try:
            for _ in range(50):
                _Connection("h", user="u", port=22, config=config)
        except AttributeError as error:
            faults.append(error)

    threads = [threading.Thread(target=connect) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert faults == []
