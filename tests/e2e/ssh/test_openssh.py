"""The transport over the `ssh` program: what holds for fabric's holds here, and its own traps."""

from __future__ import annotations

import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from pdctl.executors.openssh_transport.logins import OpensshLogins
from pdctl.executors.openssh_transport.shell import OpensshShell
from pdctl.executors.shell import UnreachableError
from pdctl.topology.model import HostSsh, Ssh

# The same tests, with this module's `login`: each of these is a promise of every transport.
from tests.e2e.ssh.test_fabric import (  # noqa: F401
    odd_hosts,
    test_a_changed_host_key_is_refused,
    test_a_command_that_may_have_begun_is_not_sent_again,
    test_a_configuration_that_is_not_there,
    test_a_connection_that_is_cut_ends_the_wait_long_before_the_limit,
    test_a_cut_in_the_middle_of_a_file_leaves_none_of_that_name,
    test_a_file_is_put_whole_and_for_the_user_alone,
    test_a_file_that_cannot_be_put_says_why_and_leaves_nothing,
    test_a_host_that_was_rebooted_is_logged_in_to_anew,
    test_a_jump_host_that_fails_is_told_as_the_one_that_fails,
    test_a_key_that_an_agent_holds_opens_the_door_though_its_file_is_locked,
    test_a_name_that_nobody_knows,
    test_a_nodes_own_settings_win_over_those_of_all,
    test_a_proxy_command_is_run_with_its_tokens,
    test_a_server_that_hangs_during_a_command_costs_its_limit,
    test_a_stream_whose_node_is_lost_says_so,
    test_an_account_that_runs_no_commands,
    test_an_ipv6_address_is_a_host_like_any_other,
    test_an_unknown_host_key_is_refused_and_its_fingerprint_told,
    test_closing_a_stream_ends_its_reader_without_a_fault,
    test_codes_are_the_commands_own_and_a_signal_is_no_lost_connection,
    test_each_way_in_which_the_network_fails_has_its_words,
    test_included_files_matches_and_key_aliases_count_as_they_do_for_ssh,
    test_input_of_many_megabytes_is_not_typed_letter_by_letter,
    test_lines_come_while_the_command_runs,
    test_many_threads_share_one_connection_that_none_of_them_has_opened,
    test_more_calls_than_a_connection_may_have_sessions_wait_for_each_other,
    test_output_of_many_megabytes_comes_whole_on_both_streams,
    test_who_is_denied_learns_as_whom_and_with_which_keys,
    test_words_reach_the_command_through_any_login_shell_and_noise_does_not_come_back,
)
from tests.testbed.hosts.host_set import HostSet

Login = Callable[..., OpensshShell]


@pytest.fixture
def sockets() -> Iterator[Path]:
    """What `XDG_RUNTIME_DIR` is for the test: pytest's own folders are too long for sockets."""
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def login(tmp_path: Path, sockets: Path) -> Iterator[Login]:
    """`login(hosts, name, …)` is a shell with settings of `cluster.ssh`; a node's own come as `node`."""
    opened: list[OpensshShell] = []

    def shell(hosts: HostSet, name: str, *, node: HostSsh | None = None, **settings: object) -> OpensshShell:
        fields = {"config": str(hosts.ssh_config), "connect_timeout_s": 5.0, **settings}
        environ = os.environ | {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(sockets)}
        opened.append(OpensshLogins(Ssh(**fields), environ).shell(node or HostSsh(), name))
        return opened[-1]

    yield shell
    for each in opened:
        each.close()


def _out(shell: OpensshShell, *argv: str) -> str:
    done = shell.run(argv, timeout_s=20)
    assert done.code == 0, done.stderr
    return done.stdout.decode()


def _fault(shell: OpensshShell) -> UnreachableError:
    with pytest.raises(UnreachableError) as caught:
        shell.run(["true"], timeout_s=20)
    return caught.value


def test_the_code_with_which_ssh_fails_may_be_the_commands_own(login, two_hosts):
    done = login(two_hosts, "h1").run(["sh", "-c", "echo out; echo err >&2; exit 255"], timeout_s=20)
    assert (done.code, done.stdout, done.stderr) == (255, b"out\n", b"err\n")


def test_a_word_of_the_shell_is_no_program(login, two_hosts):
    assert login(two_hosts, "h1").run(["exit", "3"], timeout_s=20).code == 127


def test_a_session_that_is_ended_on_the_node_is_a_cut(login, two_hosts):
    shell = login(two_hosts, "h1")
    _out(shell, "true")
    end = ("sh", "-c", "until pgrep -fx 'sleep 5432'; do sleep .1; done; pkill -f 'sshd: root[@]'")
    threading.Thread(target=two_hosts["h1"].console, args=end).start()
    with pytest.raises(UnreachableError, match="the connection was cut"):
        shell.run(["sleep", "5432"], timeout_s=50)
    two_hosts["h1"].try_console("pkill", "-fx", "sleep 5432")
    assert _out(shell, "echo", "well again") == "well again\n"


def test_a_server_that_hangs_after_the_login_holds_nobody_for_long(login, two_hosts):
    """The shared connection notices by itself; without its keepalive all later calls would hang too."""
    shell = login(two_hosts, "h1", connect_timeout_s=1.0, keepalive_s=1.0)
    _out(shell, "true")
    two_hosts["h1"].hang_sshd(sessions=True)
    try:
        assert _fault(shell).code in {"PD503", "PD517"}
        assert _fault(shell).code == "PD517"
    finally:
        two_hosts["h1"].heal()
    assert _out(shell, "echo", "well again") == "well again\n"


def test_what_a_closed_stream_ran_loses_its_output(login, two_hosts):
    shell = login(two_hosts, "h1")
    with closing(shell.follow(["sh", "-c", "echo $$; while echo beat; do sleep .1; done"])) as stream:
        pid = next(iter(stream)).decode()
    ends = time.monotonic() + 20
    while shell.run(["kill", "-0", pid], timeout_s=20).code == 0:
        assert time.monotonic() < ends, "it lives on"
        time.sleep(0.05)


def test_nothing_stays_when_shells_are_closed(login, two_hosts, sockets):
    shell = login(two_hosts, "h1")
    _out(shell, "true")
    (folder,) = sockets.iterdir()
    assert len([each for each in folder.iterdir() if each.is_socket()]) == 1
    shell.close()
    shell.close()
    ends = time.monotonic() + 20
    while [each for each in folder.iterdir() if each.is_socket()]:
        assert time.monotonic() < ends, "the connection lives on"
        time.sleep(0.02)
    assert {each.suffix for each in folder.iterdir()} == {".conf"}
    assert _out(shell, "echo", "again") == "again\n"


def test_a_connection_whose_keeper_was_killed_is_made_anew(login, two_hosts, sockets):
    shell = login(two_hosts, "h1")
    _out(shell, "true")
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and str(sockets).encode() in _words(folder):
            os.kill(int(folder.name), 9)
    assert _out(shell, "echo", "anew") == "anew\n"


def _words(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_a_key_that_is_not_there_or_no_key_or_locked(login, two_hosts, tmp_path):
    text, open_to_all = tmp_path / "text", tmp_path / "open"
    text.write_text("no key\n")
    text.chmod(0o600)
    open_to_all.write_bytes(two_hosts.key.read_bytes())
    open_to_all.chmod(0o644)
    config = tmp_path / "config"
    config.write_text(
        f"Host h1\n  HostName {two_hosts['h1'].address}\nHost *\n  User root\n  IdentitiesOnly yes\n"
        f"  UserKnownHostsFile {two_hosts.known_hosts}\n"
    )
    told = {
        path.name: str(_fault(login(two_hosts, "h1", config=str(config), identity_file=str(path))))
        for path in (text, open_to_all, tmp_path / "none")
    }
    assert told == {
        "text": f"the key `{text}` can't be used: it is no private key",
        "open": f"the key `{open_to_all}` can't be used: others than you may read it",
        "none": f"the key `{tmp_path / 'none'}` can't be used: there is no such file",
    }


def test_a_jump_host_is_logged_in_to_once_for_all_nodes_behind_it(two_hosts, sockets):
    settings = Ssh(config=str(two_hosts.ssh_config), proxy_jump="h2")
    logins = OpensshLogins(settings, os.environ | {"XDG_RUNTIME_DIR": str(sockets)})
    shells = [logins.shell(HostSsh(), two_hosts["h1"].address) for _ in range(3)]
    try:
        for shell in shells:
            told = _out(shell, "sh", "-c", "echo $SSH_CONNECTION")
            assert told.split()[0] == two_hosts["h2"].address
        open_now = "ss -Htn state established 'sport = :22' | wc -l"
        assert two_hosts["h2"].console("sh", "-c", open_now).strip() == "1"
    finally:
        for shell in shells:
            shell.close()
