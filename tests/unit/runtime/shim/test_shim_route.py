from __future__ import annotations

import pytest

from runtime.shim.record import RequestError
from runtime.shim.route import route


def test_the_way_to_this_machine_leaves_through_the_loopback_interface(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert route(["127.0.0.1", "::1"]) == {
        "login": None,
        "routes": [
            {"address": "127.0.0.1", "interface": "lo", "error": None},
            {"address": "::1", "interface": "lo", "error": None},
        ],
    }


def test_a_login_came_in_by_the_address_that_sshd_tells(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 40000 127.0.0.1 22")
    assert route([])["login"] == {"address": "127.0.0.1", "interface": "lo"}


def test_a_name_that_is_unknown_here_is_an_answer_of_its_own():
    unknown, known = route(["no-such-host.invalid", "127.0.0.1"])["routes"]
    assert unknown["error"].startswith("`no-such-host.invalid` has no address there: ")
    assert known["error"] is None


@pytest.mark.parametrize("targets", [None, "a", ["a"] * 5000])
def test_targets_are_a_list_of_bounded_length(targets: object):
    with pytest.raises(RequestError):
        route(targets)
