"""The words of the real `ssh`, as the faults that every transport tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pdctl.executors.known_hosts import KnownHosts
from pdctl.executors.openssh_transport.faults import fault_of, needs_closer_look
from pdctl.executors.ssh_login import Login

_LOGIN = Login(
    host="10.0.0.2",
    port=22,
    user="root",
    host_key_name="10.0.0.2",
    identity_files=("/k/id",),
    stated_identity="/k/id",
    identities_only=True,
    may_use_agent=True,
    known_hosts=("/k/known",),
    proxy_jump=None,
    proxy_command=None,
    address_family="any",
)
_BEHIND = replace(_LOGIN, proxy_jump="jump")
_KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIA=="
_CHANGED = """\
debug1: Server host key: ssh-ed25519 SHA256:new
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@
Offending ED25519 key in /k/known:1
Host key for {name} has changed and you have requested strict checking.
Host key verification failed.
"""


@pytest.mark.parametrize(
    ("said", "code", "reason"),
    [
        ("ssh: Could not resolve hostname h: Name or service not known", "PD515", "can't be resolved"),
        ("ssh: connect to host h port 24: Connection refused\r", "PD516", "port 24 was refused"),
        ("ssh: connect to host h port 22: Connection timed out", "PD516", "within 2 s"),
        ("ssh: connect to host h port 22: No route to host", "PD516", "no way to port 22: no route to host"),
        ("Connection timed out during banner exchange", "PD517", "greets nobody within 2 s"),
        ("kex_exchange_identification: read: Connection reset by peer", "PD517", "closes them"),
        ("kex_exchange_identification: Connection closed by remote host", "PD517", "closes them"),
        ("kex_exchange_identification: banner line contains invalid characters", "PD517", "no SSH server"),
        ("bob@h: Permission denied (publickey,password).", "PD520", "`bob` may not log in"),
        (
            'Load key "/k/id": bad permissions\nroot@h: Permission denied (publickey).',
            "PD521",
            "others than you",
        ),
        ("/c: line 1: Bad configuration option: foo\n/c: terminating, 1 bad", "PD524", "/c: terminating"),
        ("No Kerberos credentials available", "PD510", "`ssh` says: No Kerberos credentials available"),
        ("", "PD503", "the connection was cut"),
    ],
)
def test_each_of_its_messages_is_a_fault(said, code, reason):
    fault = fault_of(said, _LOGIN, KnownHosts(), connect_timeout_s=2)
    assert (fault.code, reason in str(fault)) == (code, True), str(fault)


def test_a_denied_login_names_what_was_tried():
    said = (
        "OpenSSH_9.2p1\ndebug1: Offering public key: /k/id ED25519 SHA256:x explicit\n"
        "root@10.0.0.2: Permission denied (publickey).\n"
    )
    fault = fault_of(said, _LOGIN, KnownHosts(), connect_timeout_s=2)
    assert fault.notes == ("tried `/k/id`", "the server takes publickey")


def test_a_changed_host_key_is_shown_beside_the_known_one():
    known = KnownHosts.parse([f"10.0.0.2 ssh-ed25519 {_KEY}\n"])
    (expected,) = known.keys_of("10.0.0.2")
    fault = fault_of(_CHANGED.format(name="10.0.0.2"), _LOGIN, known, connect_timeout_s=2)
    assert fault.code == "PD519"
    assert fault.notes[0] == (
        f"`10.0.0.2` shows the ssh-ed25519 key SHA256:new, known is {expected.fingerprint}"
    )


def test_an_unknown_host_key_is_shown():
    said = (
        "debug1: Server host key: ssh-ed25519 SHA256:new\n"
        "No ED25519 host key is known for [h]:24 and you have requested strict checking.\n"
        "Host key verification failed.\n"
    )
    fault = fault_of(said, _LOGIN, KnownHosts(), connect_timeout_s=2)
    assert (fault.code, fault.notes[0]) == ("PD518", "`[h]:24` shows the ssh-ed25519 key SHA256:new")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ssh: connect to host j port 22: Connection refused", "the connection to port 22 was refused"),
        ("bob@j: Permission denied (publickey).", "`bob` may not log in"),
        ("stdio forwarding failed", "it gets no connection to port 22 of the node"),
        (
            "debug1: channel 0: open failed: administratively prohibited: no\nstdio forwarding failed",
            "it forwards no connections",
        ),
        (_CHANGED.format(name="j"), "its host key has changed"),
    ],
)
def test_the_fault_of_a_jump_host_is_told_as_its_own(said, reason):
    said += "\nkex_exchange_identification: Connection closed by remote host"
    fault = fault_of(said, _BEHIND, KnownHosts(), connect_timeout_s=2)
    assert (fault.code, str(fault)) == ("PD522", f"the jump host `jump` can't be passed: {reason}")


def test_the_fault_of_a_node_behind_a_jump_host_is_the_nodes():
    fault = fault_of("root@h: Permission denied (publickey).", _BEHIND, KnownHosts(), connect_timeout_s=2)
    assert (fault.code, str(fault)) == ("PD520", "`root` may not log in")


@pytest.mark.parametrize(
    ("said", "login", "is_needed"),
    [
        ("root@h: Permission denied (publickey).", _LOGIN, True),
        ("Host key verification failed.", _LOGIN, True),
        ("ssh: connect to host h port 22: Connection refused", _LOGIN, False),
        ("Connection timed out during banner exchange", _LOGIN, False),
        ("Connection timed out during banner exchange", _BEHIND, True),
    ],
)
def test_a_second_look_is_taken_only_where_it_tells_more(said, login, is_needed):
    assert needs_closer_look(said, login) is is_needed
