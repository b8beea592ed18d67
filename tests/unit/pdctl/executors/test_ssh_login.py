from __future__ import annotations

import pytest

from pdctl.executors.shell import UnreachableError
from pdctl.executors.ssh_login import Asked, Operator, asked_for, asked_for_hop, login_of
from pdctl.topology.model import HostSsh, Ssh

ME = Operator(user="me", home="/home/me", machine="desk.example.org")


def _login(asked: Asked, **options: str | tuple[str, ...]):
    values = {key: value if isinstance(value, tuple) else (value,) for key, value in options.items()}
    return login_of(asked, values, ME)


def test_without_any_settings_it_is_the_operators_own_name_at_port_22():
    login = _login(Asked(host="gpu1"))
    assert (login.user, login.host, login.port, login.host_key_name) == ("me", "gpu1", 22, "gpu1")
    assert login.known_hosts[0] == "/home/me/.ssh/known_hosts"
    assert (login.proxy_jump, login.proxy_command, login.may_use_agent) == (None, None, True)


def test_the_nodes_word_goes_before_the_clusters_and_that_before_the_configuration():
    ssh = Ssh(user="all", port=2200, identity_file="~/all", proxy_jump="gate", known_hosts="/known")
    asked = asked_for(ssh, HostSsh(user="one", host="GPU-one"), "10.0.0.1")
    login = _login(asked, user="config", port="22", hostname="gpu-one", identityfile=("~/.ssh/a", "none"))
    assert (login.user, login.host, login.port) == ("one", "gpu-one", 2200)
    assert login.host_key_name == "[gpu-one]:2200"
    assert login.identity_files == ("/home/me/all", "/home/me/.ssh/a")
    assert login.stated_identity == "/home/me/all"
    assert login.proxy_jump == "gate"
    assert login.known_hosts == ("/known", "/etc/ssh/ssh_known_hosts")


def test_none_goes_straight_whatever_the_configuration_says():
    login = _login(Asked(host="a", proxy_jump="none"), proxyjump="gate", proxycommand="nc %h %p")
    assert (login.proxy_jump, login.proxy_command) == (None, None)
    assert _login(Asked(host="a"), proxyjump="none", proxycommand="none").proxy_command is None


def test_tokens_stand_for_what_ssh_config_says():
    login = _login(
        Asked(host="alias", port=2222),
        hostname="real",
        user="root",
        proxycommand="gate %n %h:%p %r %u 100%% %L",
        identityfile="%d/keys/%r@%h",
    )
    assert login.proxy_command == "gate alias real:2222 root me 100% desk"
    assert login.identity_files == ("/home/me/keys/root@real",)


def test_a_key_alias_is_the_name_without_a_port():
    assert _login(Asked(host="a", port=2222), hostkeyalias="fleet").host_key_name == "fleet"


def test_an_agent_is_left_alone_where_the_configuration_says_so():
    assert not _login(Asked(host="a"), identityagent="none").may_use_agent


@pytest.mark.parametrize(
    ("hop", "user", "host", "port"),
    [
        ("gate", None, "gate", None),
        ("me@gate:2222", "me", "gate", 2222),
        ("ssh://me@gate:22", "me", "gate", 22),
        ("me@[fd00::1]:22", "me", "fd00::1", 22),
    ],
)
def test_a_jump_host_is_written_as_for_ssh(hop: str, user: str | None, host: str, port: int | None):
    asked = asked_for_hop(Ssh(user="all", identity_file="/k"), hop, "first")
    assert (asked.user, asked.host, asked.port) == (user, host, port)
    assert (asked.identity_file, asked.proxy_jump) == ("/k", "first")


@pytest.mark.parametrize("hop", ["", "a:b:c", "@"])
def test_what_is_no_jump_host_is_told(hop: str):
    with pytest.raises(UnreachableError, match="no jump host"):
        asked_for_hop(Ssh(), hop, None)


def test_a_port_that_is_no_number_is_told():
    with pytest.raises(UnreachableError, match="port `ssh` is no number"):
        _login(Asked(host="a"), port="ssh")


def test_the_login_by_hand_is_the_same_login():
    ssh = Ssh(user="all", port=2200, identity_file="~/k", proxy_jump="g", known_hosts="~/kn", config="/c d")
    login = _login(asked_for(ssh, HostSsh(host="gpu1"), "10.0.0.1"))
    assert login.by_hand == (
        "ssh -F '/c d' -o 'UserKnownHostsFile=\"/home/me/kn\"' -i /home/me/k -o ProxyJump=g -p 2200 -l all "
        "-o StrictHostKeyChecking=ask -- gpu1 true"
    )
    assert _login(Asked(host="gpu1")).by_hand == "ssh -o StrictHostKeyChecking=ask -- gpu1 true"
