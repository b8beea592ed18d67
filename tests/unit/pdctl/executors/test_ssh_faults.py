"""Reasons are the same for all nodes of one fault, so that a hundred of them are one line."""

from __future__ import annotations

from pdctl.executors import ssh_faults
from pdctl.executors.link import lost_node, unreachable_nodes
from pdctl.executors.shell import UNREACHABLE_CODES, UnreachableError


def _unknown(host: str) -> UnreachableError:
    by_hand = f"ssh -- {host} true"
    return ssh_faults.host_key_unknown(host, "ssh-ed25519", f"SHA256:{host}", ["/known"], by_hand=by_hand)


def test_nodes_of_one_reason_are_told_together_with_what_each_has_of_its_own():
    lost = {f"n{number}": ssh_faults.unanswered(22, 10.0) for number in range(1, 4)}
    lost["m1"] = ssh_faults.refused(22)
    found = unreachable_nodes([lost_node(name, error) for name, error in lost.items()]).diagnostics
    assert [(each.code, each.message) for each in found] == [
        ("PD516", "n[1-3] can't be reached: nothing answers at port 22 within 10 s"),
        ("PD516", "m1 can't be reached: the connection to port 22 was refused"),
    ]


def test_a_hundred_fingerprints_are_not_all_told():
    lost = [lost_node("n1", ssh_faults.refused(22)), lost_node("n2", ssh_faults.refused(22))]
    assert len(unreachable_nodes(lost).diagnostics) == 1
    many = [lost_node(f"n{number}", ssh_faults.unresolvable(f"n{number}")) for number in range(100)]
    (fault,) = unreachable_nodes(many).diagnostics
    assert "and 90 more like these" in fault.notes


def test_commands_to_paste_stand_on_lines_of_their_own_below_one_hint():
    (fault,) = unreachable_nodes([lost_node(name, _unknown(name)) for name in ("n1", "n2")]).diagnostics
    assert (fault.help or "").splitlines() == [
        "compare the fingerprint with the node's own, then log in once and accept it:",
        "ssh -- n1 true",
        "ssh -- n2 true",
    ]


def test_a_changed_key_is_forgotten_in_the_files_that_have_it():
    fault = ssh_faults.host_key_changed("[n1]:2222", "t", "new", "old", ["/my keys"], by_hand="ssh n1")
    assert fault.commands == ("ssh-keygen -R '[n1]:2222' -f '/my keys'", "ssh n1")


def test_a_failing_jump_host_keeps_what_is_known_of_its_fault():
    fault = ssh_faults.jump_failed("gate", ssh_faults.permission_denied("me", ["/k"]))
    assert str(fault) == "the jump host `gate` can't be passed: `me` may not log in"
    assert fault.notes == ("tried `/k`",)


def test_every_code_is_one_of_an_unreachable_node():
    faults = [
        _unknown("a"),
        ssh_faults.bad_settings("x"),
        ssh_faults.no_shell("me", ""),
        ssh_faults.key_locked("/k"),
        ssh_faults.silent(22, 1.0),
        ssh_faults.cut_off(),
    ]
    assert {fault.code for fault in faults} <= UNREACHABLE_CODES
