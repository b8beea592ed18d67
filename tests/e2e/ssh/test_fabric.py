"""The fabric transport on real hosts. The first part holds the cures for what fabric does as documented."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pdctl.executors.fabric_transport.logins import FabricLogins
from pdctl.executors.fabric_transport.shell import FabricShell
from pdctl.executors.shell import UnreachableError
from pdctl.topology.model import HostSsh, Ssh
from tests.testbed.hosts.host import Host
from tests.testbed.hosts.host_set import HostSet
from tests.testbed.hosts.host_spec import SSHD_LIMITS, HostSpec

KEEPALIVE_S = 0.3  # a cut is seen after four of these
NOISE = "echo welcome; echo oops >&2; printf unfinished\n"
Login = Callable[..., FabricShell]


@pytest.fixture(scope="module")
def odd_hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    return make_hosts(
        limited=HostSpec(sshd=SSHD_LIMITS),
        tight=HostSpec(sshd=("MaxSessions 2",)),
        fishy=HostSpec(login_shell="/usr/bin/fish", files={"/root/.config/fish/config.fish": NOISE}),
        cshy=HostSpec(login_shell="/usr/bin/tcsh", files={"/root/.cshrc": "echo welcome to csh\n"}),
        bashful=HostSpec(files={"/root/.bashrc": NOISE}),
        locked=HostSpec(accepts_key=False),
        shellless=HostSpec(user="runner", login_shell="/usr/sbin/nologin"),
        walled=HostSpec(sshd=("AllowTcpForwarding no",)),
        frozen=HostSpec(is_home_read_only=True),
        gate=HostSpec(),
        behind=HostSpec(),
        small=HostSpec(home_bytes=1 << 20),
    )


@pytest.fixture
def login(tmp_path: Path) -> Iterator[Login]:
    """`login(hosts, name, …)` is a shell with settings of `cluster.ssh`; a node's own come as `node`."""
    opened: list[FabricShell] = []

    def shell(hosts: HostSet, name: str, *, node: HostSsh | None = None, **settings: object) -> FabricShell:
        fields = {"config": str(hosts.ssh_config), "connect_timeout_s": 5.0, **settings}
        environ = {"HOME": str(tmp_path), "USER": "root"}
        opened.append(FabricLogins(Ssh(**fields), environ).shell(node or HostSsh(), name))
        return opened[-1]

    yield shell
    for each in opened:
        each.close()


def _out(shell: FabricShell, *argv: str, stdin: bytes = b"") -> str:
    done = shell.run(argv, stdin=stdin, timeout_s=20)
    assert done.code == 0, done.stderr
    return done.stdout.decode()


def _fault(shell: FabricShell) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        shell.run(["true"], timeout_s=20)
    return caught.value


def _known_key(hosts: HostSet, name: str) -> str:
    lines = hosts.known_hosts.read_text().splitlines()
    return next(line.split(maxsplit=1)[1] for line in lines if hosts[name].address in line.split()[0])


# What fabric does as documented, and must not do here


def test_an_unknown_host_key_is_refused_and_its_fingerprint_told(login, two_hosts, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text("")
    fault = _fault(login(two_hosts, "h1", known_hosts=str(known)))
    assert (fault.code, str(fault)) == ("PD518", "its host key is not known")
    scanned = subprocess.run(
        ["ssh-keyscan", "-t", "ed25519", two_hosts["h1"].address], capture_output=True, check=True
    ).stdout
    shown = subprocess.run(["ssh-keygen", "-lf", "-"], input=scanned, capture_output=True, check=True).stdout
    assert shown.decode().split()[1] in fault.notes[0]
    assert known.read_text() == ""


def test_a_changed_host_key_is_refused(login, two_hosts, tmp_path):
    known = tmp_path / "known_hosts"
    known.write_text(f"{two_hosts['h2'].address} {_known_key(two_hosts, 'h1')}\n")
    fault = _fault(login(two_hosts, "h2", known_hosts=str(known)))
    assert (fault.code, str(fault)) == ("PD519", "its host key has changed")
    assert fault.notes[1] == f"known from `{known}`"


def test_a_server_that_hangs_after_the_login_costs_no_hour(login, two_hosts):
    shell = login(two_hosts, "h1", connect_timeout_s=1.0)
    _out(shell, "true")
    two_hosts["h1"].hang_sshd(sessions=True)
    try:
        assert _fault(shell).code == "PD517"
    finally:
        two_hosts["h1"].heal()
    assert _out(shell, "echo", "well again") == "well again\n"


def test_a_server_that_hangs_during_a_command_costs_its_limit(login, two_hosts):
    shell = login(two_hosts, "h1", connect_timeout_s=1.0)
    _out(shell, "true")
    threading.Timer(0.5, lambda: two_hosts["h1"].hang_sshd(sessions=True)).start()
    try:
        with pytest.raises(UnreachableError, match="no answer within 2 s"):
            shell.run(["sh", "-c", "sleep 1; echo late"], timeout_s=2)
    finally:
        two_hosts["h1"].heal()


def test_output_of_many_megabytes_comes_whole_on_both_streams(login, two_hosts):
    script = "head -c 16777216 /dev/zero; head -c 5000000 /dev/zero >&2"
    done = login(two_hosts, "h1").run(["sh", "-c", script], timeout_s=60)
    assert (done.code, len(done.stdout), len(done.stderr)) == (0, 16777216, 5000000)


def test_input_of_many_megabytes_is_not_typed_letter_by_letter(login, two_hosts):
    content = os.urandom(8_000_000)
    done = login(two_hosts, "h1").run(["cat"], stdin=content, timeout_s=60)
    assert done.stdout == content
    # Nor must a command read what it is given.
    assert login(two_hosts, "h1").run(["true"], stdin=content, timeout_s=60).code == 0


@pytest.mark.parametrize("name", ["bashful", "fishy", "cshy"])
def test_words_reach_the_command_through_any_login_shell_and_noise_does_not_come_back(login, odd_hosts, name):
    words = ["a b", "$(touch /tmp/pwned)", "it's; touch /tmp/pwned", "!!", "new\nline", "\\", "節点", ""]
    shell = login(odd_hosts, name)
    printed = _out(shell, "sh", "-c", 'for each in "$@"; do printf "<%s>" "$each"; done', "sh", *words)
    assert printed == "".join(f"<{word}>" for word in words)
    assert shell.run(["test", "-e", "/tmp/pwned"], timeout_s=20).code == 1


def test_many_threads_share_one_connection_that_none_of_them_has_opened(login, two_hosts):
    shell = login(two_hosts, "h1")
    with ThreadPoolExecutor(32) as pool:
        seen = set(pool.map(lambda _: _out(shell, "printenv", "SSH_CONNECTION"), range(64)))
    assert len(seen) == 1


# What commands are, and how they end


def test_codes_are_the_commands_own_and_a_signal_is_no_lost_connection(login, two_hosts):
    shell = login(two_hosts, "h1")
    codes = [
        shell.run(argv, timeout_s=20).code
        for argv in (["true"], ["sh", "-c", "exit 7"], ["sh", "-c", "exit 255"], ["no-such-program"])
    ]
    assert codes == [0, 7, 255, 127]
    assert shell.run(["sh", "-c", "kill -KILL $$"], timeout_s=20).code < 0


def test_a_connection_that_is_cut_ends_the_wait_long_before_the_limit(login, two_hosts):
    shell = login(two_hosts, "h1", keepalive_s=KEEPALIVE_S)
    _out(shell, "true")
    threading.Timer(0.5, two_hosts["h1"].cut).start()
    with pytest.raises(UnreachableError, match="the connection was cut"):
        shell.run(["sleep", "200"], timeout_s=250)
    two_hosts["h1"].heal()
    assert _out(shell, "echo", "back") == "back\n"
    two_hosts["h1"].console("pkill", "-fx", "sleep [0-9]+")


def test_a_host_that_was_rebooted_is_logged_in_to_anew(login, two_hosts):
    shell = login(two_hosts, "h2", keepalive_s=KEEPALIVE_S)
    first = _out(shell, "cat", "/proc/sys/kernel/random/boot_id")
    two_hosts["h2"].reboot()
    assert _out(shell, "cat", "/proc/sys/kernel/random/boot_id") != first


def test_a_command_that_may_have_begun_is_not_sent_again(login, two_hosts):
    shell = login(two_hosts, "h1", keepalive_s=KEEPALIVE_S)
    _out(shell, "rm", "-f", "/tmp/runs")
    threading.Timer(0.5, two_hosts["h1"].cut).start()
    with pytest.raises(UnreachableError):
        shell.run(["sh", "-c", "echo run >> /tmp/runs; sleep 30"], timeout_s=250)
    two_hosts["h1"].heal()
    assert _out(shell, "cat", "/tmp/runs") == "run\n"


def test_more_calls_than_a_connection_may_have_sessions_wait_for_each_other(login, odd_hosts):
    for name in ("limited", "tight"):
        shell = login(odd_hosts, name)
        with ThreadPoolExecutor(24) as pool:
            codes = list(
                pool.map(lambda _, shell=shell: shell.run(["sleep", "0.05"], timeout_s=60).code, range(24))
            )
        assert codes == [0] * 24


def test_more_newcomers_than_a_server_takes_at_a_time_get_in_all_the_same(login, odd_hosts):
    shells = [login(odd_hosts, "limited") for _ in range(24)]
    with ThreadPoolExecutor(24) as pool:
        assert list(pool.map(lambda shell: _out(shell, "echo", "in"), shells)) == ["in\n"] * 24


# Streams


def test_lines_come_while_the_command_runs(login, two_hosts):
    shell = login(two_hosts, "h1")
    _out(shell, "sh", "-c", "rm -f /tmp/go")
    stream = shell.follow(
        ["sh", "-c", "echo first; until [ -e /tmp/go ]; do sleep 0.02; done; cat; printf end"], stdin=b"fed\n"
    )
    lines = iter(stream)
    assert next(lines) == b"first"
    _out(shell, "touch", "/tmp/go")
    assert list(lines) == [b"fed", b"end"]


def test_closing_a_stream_ends_its_reader_without_a_fault(login, two_hosts):
    stream = login(two_hosts, "h1").follow(["sh", "-c", "echo on; sleep 600"])
    lines = iter(stream)
    next(lines)
    threading.Timer(0.2, stream.close).start()
    assert list(lines) == []
    two_hosts["h1"].console("pkill", "-fx", "sleep [0-9]+")


def test_a_stream_whose_node_is_lost_says_so(login, two_hosts):
    stream = login(two_hosts, "h1", keepalive_s=KEEPALIVE_S).follow(["sh", "-c", "echo on; sleep 600"])
    lines = iter(stream)
    next(lines)
    two_hosts["h1"].cut()
    try:
        with pytest.raises(UnreachableError, match="cut"):
            next(lines)
    finally:
        two_hosts["h1"].heal()
        two_hosts["h1"].console("pkill", "-fx", "sleep [0-9]+")


# Files


def test_a_file_is_put_whole_and_for_the_user_alone(login, two_hosts):
    shell, content = login(two_hosts, "h1"), os.urandom(300_000)
    shell.put("/tmp/put it/here's one", content)
    assert two_hosts["h1"].path("/tmp/put it/here's one").read_bytes() == content
    assert _out(
        shell, "sh", "-c", "stat -c %a '/tmp/put it' \"/tmp/put it/here's one\"; ls -A '/tmp/put it'"
    ) == ("700\n600\nhere's one\n")


@pytest.mark.parametrize(("name", "words"), [("frozen", "Read-only file system"), ("small", "No space left")])
def test_a_file_that_cannot_be_put_says_why_and_leaves_nothing(login, odd_hosts, name, words):
    shell = login(odd_hosts, name)
    with pytest.raises(OSError, match=words):
        shell.put("/root/.local/state/shim.py", b"x" * (2 << 20))
    assert shell.run(["sh", "-c", "ls -A /root/.local/state/"], timeout_s=20).stdout == b""


def test_a_cut_in_the_middle_of_a_file_leaves_none_of_that_name(login, two_hosts):
    shell = login(two_hosts, "h1", keepalive_s=KEEPALIVE_S, connect_timeout_s=1.0)
    _out(shell, "true")
    two_hosts["h1"].slow("1mbit")
    threading.Timer(1.0, two_hosts["h1"].cut).start()
    with pytest.raises(UnreachableError):
        shell.put("/tmp/half", b"x" * 4_000_000)
    two_hosts["h1"].heal()
    assert shell.run(["test", "-e", "/tmp/half"], timeout_s=20).code == 1


# Why a login fails


def test_each_way_in_which_the_network_fails_has_its_words(login, two_hosts):
    host = two_hosts["h2"]

    def told() -> tuple[str, str]:
        fault = _fault(login(two_hosts, "h2", connect_timeout_s=1.0))
        return fault.code, str(fault)

    host.refuse(22)
    refused = told()
    host.heal()
    host.blackhole()
    unanswered = told()
    host.heal()
    host.hang_sshd()
    silent = told()
    host.heal()
    assert [refused, unanswered, silent] == [
        ("PD516", "the connection to port 22 was refused"),
        ("PD516", "nothing answers at port 22 within 1 s"),
        ("PD517", "port 22 takes connections but greets nobody within 1 s"),
    ]


def test_a_name_that_nobody_knows(login, two_hosts):
    fault = _fault(login(two_hosts, "no-such-host.invalid"))
    assert (fault.code, str(fault)) == ("PD515", "its name can't be resolved")


def test_who_is_denied_learns_as_whom_and_with_which_keys(login, odd_hosts):
    fault = _fault(login(odd_hosts, "locked"))
    assert (fault.code, str(fault)) == ("PD520", "`root` may not log in")
    assert fault.notes[0] == f"tried `{odd_hosts.key}`"
    assert fault.notes[1] == "the server takes publickey"


def test_a_key_that_is_not_there_or_no_key_or_locked(login, two_hosts, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        f"Host h1\n HostName {two_hosts['h1'].address}\n User root\n IdentityFile /nonexistent\n"
        f" UserKnownHostsFile {two_hosts.known_hosts}\n"
    )
    (tmp_path / "text").write_text("no key\n")
    locked = tmp_path / "locked"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "secret", "-f", str(locked)], check=True)
    told = {}
    for name in ("missing", "text", "locked"):
        path = str(tmp_path / name)
        fault = _fault(login(two_hosts, "h1", config=str(config), identity_file=path))
        told[name] = (fault.code, str(fault).replace(str(tmp_path), ""))
    assert told == {
        "missing": ("PD521", "the key `/missing` can't be used: there is no such file"),
        "text": ("PD521", "the key `/text` can't be used: it is no private key"),
        "locked": ("PD521", "the key `/locked` has a passphrase, and no agent holds it"),
    }


def test_an_account_that_runs_no_commands(login, odd_hosts):
    fault = _fault(login(odd_hosts, "shellless"))
    assert (fault.code, str(fault)) == ("PD523", "the login shell of `runner` runs no command")
    assert "not available" in fault.notes[0]


def test_a_configuration_that_is_not_there(login, two_hosts):
    fault = _fault(login(two_hosts, "h1", config="/nonexistent/config"))
    assert (fault.code, str(fault)) == (
        "PD524",
        "the SSH configuration can't be used: there is no file `/nonexistent/config`",
    )


# The operator's own settings


def test_a_key_that_an_agent_holds_opens_the_door_though_its_file_is_locked(
    login, two_hosts, tmp_path, monkeypatch
):
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", str(tmp_path / "agent")], stdout=subprocess.DEVNULL)
    try:
        while not (tmp_path / "agent").exists():
            assert agent.poll() is None
        subprocess.run(["ssh-add", "-q", str(two_hosts.key)], check=True)
        locked = tmp_path / "locked"
        locked.write_bytes(two_hosts.key.read_bytes())
        locked.chmod(0o600)
        subprocess.run(["ssh-keygen", "-qp", "-P", "", "-N", "secret", "-f", str(locked)], check=True)
        (tmp_path / "locked.pub").write_bytes(two_hosts.key.with_name("id.pub").read_bytes())
        config = tmp_path / "config"
        config.write_text(
            f"Host h1\n HostName {two_hosts['h1'].address}\n User root\n IdentitiesOnly yes\n"
            f" IdentityFile {locked}\n UserKnownHostsFile {two_hosts.known_hosts}\n"
        )
        assert _out(login(two_hosts, "h1", config=str(config)), "echo", "in") == "in\n"
    finally:
        agent.send_signal(signal.SIGTERM)
        agent.wait()


def test_included_files_matches_and_key_aliases_count_as_they_do_for_ssh(login, two_hosts, tmp_path):
    host = two_hosts["h1"]
    (tmp_path / "known").write_text(f"the-alias {_known_key(two_hosts, 'h1')}\n")
    (tmp_path / "more").write_text(
        f"Host gpu*\n HostName {host.address}\n HostKeyAlias the-alias\n IdentityFile {two_hosts.key}\n"
        f"Match originalhost gpu1\n User root\n UserKnownHostsFile {tmp_path / 'known'}\n"
    )
    config = tmp_path / "config"
    config.write_text(f"Include {tmp_path / 'more'}\n")
    assert _out(login(two_hosts, "gpu1", config=str(config)), "hostname") == "h1\n"


def test_jump_hosts_are_logged_in_to_once_for_all_behind_them(odd_hosts, tmp_path):
    gate, target = odd_hosts["gate"], odd_hosts["behind"]

    def num_logins(host: Host) -> int:
        return int(host.console("sh", "-c", "ss -Htn state established 'sport = :22' | wc -l"))

    ssh = Ssh(config=str(odd_hosts.ssh_config), proxy_jump="gate")
    logins = FabricLogins(ssh, {"HOME": str(tmp_path)})
    shells = [logins.shell(HostSsh(), name) for name in ["behind"] * 3]
    with ThreadPoolExecutor(3) as pool:
        told = pool.map(lambda shell: _out(shell, "printenv", "SSH_CONNECTION"), shells)
        origins = {connection.split()[0] for connection in told}
    assert origins == {gate.address}
    assert (num_logins(gate), num_logins(target)) == (1, 3)
    for shell in shells:
        shell.close()
    logins.close()


def test_a_jump_host_that_fails_is_told_as_the_one_that_fails(login, two_hosts, odd_hosts, tmp_path):
    two_hosts["h1"].refuse(22)
    down = _fault(login(two_hosts, "h2", proxy_jump="h1"))
    two_hosts["h1"].heal()
    two_hosts["h2"].refuse(22)
    beyond = _fault(login(two_hosts, "h2", proxy_jump="h1"))
    two_hosts["h2"].heal()
    walled = _fault(login(odd_hosts, "limited", proxy_jump="walled"))
    assert [(fault.code, str(fault)) for fault in (down, beyond, walled)] == [
        ("PD522", "the jump host `h1` can't be passed: the connection to port 22 was refused"),
        ("PD522", "the jump host `h1` can't be passed: it gets no connection to port 22 of the node"),
        ("PD522", "the jump host `walled` can't be passed: it forwards no connections"),
    ]


def test_a_proxy_command_is_run_with_its_tokens(login, two_hosts, tmp_path):
    config = tmp_path / "config"
    config.write_text(
        f"Host h2\n ProxyCommand ssh -F {two_hosts.ssh_config} -W %h:%p h1\n"
        + two_hosts.ssh_config.read_text()
    )
    shell = login(two_hosts, "h2", config=str(config))
    assert _out(shell, "printenv", "SSH_CONNECTION").split()[0] == two_hosts["h1"].address


def test_a_nodes_own_settings_win_over_those_of_all(login, two_hosts):
    shell = login(
        two_hosts,
        "no-such-host.invalid",
        node=HostSsh(host="h1", user="root", port=22),
        user="nobody",
        port=1,
    )
    assert _out(shell, "id", "-un") == "root\n"


def test_an_ipv6_address_is_a_host_like_any_other(login, two_hosts):
    assert _out(login(two_hosts, two_hosts["h1"].address6, user="root"), "hostname") == "h1\n"
