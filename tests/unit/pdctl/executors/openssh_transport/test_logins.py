"""The folder of sockets, and what makes it unfit."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.openssh_transport.logins import OpensshLogins, socket_folder
from pdctl.topology.model import Ssh


def _code(environ: dict[str, str]) -> str:
    with pytest.raises(DiagnosticError) as caught:
        OpensshLogins(Ssh(), environ)
    (fault,) = caught.value.diagnostics
    return fault.code


@pytest.mark.parametrize("session", ["", "relative", "/run/" + 60 * "x", "/run/" + 20 * "ü"])
def test_a_session_folder_that_is_none_or_too_long_for_sockets_is_passed_over(session):
    assert socket_folder({"XDG_RUNTIME_DIR": session}, 7) == Path("/tmp/pdctl-ssh-7")


def test_the_longest_session_folder_leaves_room_for_a_socket_and_what_ssh_adds():
    longest = max(
        (socket_folder({"XDG_RUNTIME_DIR": "/" + n * "x"}, 7) for n in range(100)),
        key=lambda folder: len(str(folder)),
    )
    address = f"{longest}/{8 * 'f'}-{40 * 'C'}.{16 * 'x'}"
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(FileNotFoundError):
        one.bind(address)
    with socket.socket(socket.AF_UNIX) as one, pytest.raises(OSError, match="too long"):
        one.bind(address + "x")


def test_a_folder_that_others_may_enter_is_refused():
    with tempfile.TemporaryDirectory(prefix="s", dir="/tmp") as session:  # pytest's own folders are too long
        environ = {"XDG_RUNTIME_DIR": session, "PATH": os.environ["PATH"]}
        folder = socket_folder(environ, os.getuid())
        folder.mkdir(mode=0o755)
        assert _code(environ) == "PD512"
        folder.rmdir()
        folder.symlink_to(session)
        assert _code(environ) == "PD512"
        folder.unlink()
        OpensshLogins(Ssh(), environ)
        assert folder.parent == Path(session)
        assert folder.stat().st_mode & 0o777 == 0o700


def test_without_the_program_there_is_a_hint(tmp_path):
    assert _code({"PATH": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}) == "PD511"
