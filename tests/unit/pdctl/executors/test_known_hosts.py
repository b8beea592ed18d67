from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from pdctl.executors.known_hosts import HostKey, KnownHosts

BLOB = base64.b64encode(b"key one").decode()
OTHER = base64.b64encode(b"key two").decode()
KEY = HostKey(type="ssh-ed25519", blob=b"key one")


def _known(*lines: str) -> KnownHosts:
    return KnownHosts.parse(["\n".join(lines)])


@pytest.mark.parametrize(
    ("names", "name", "is_known"),
    [
        ("gpu1", "gpu1", True),
        ("GPU1", "gpu1", True),
        ("gpu1", "gpu10", False),
        ("gpu1,10.0.0.1", "10.0.0.1", True),
        ("gpu*,!gpu2", "gpu1", True),
        ("gpu*,!gpu2", "gpu2", False),
        ("gpu?", "gpu12", False),
        ("[gpu1]:2222", "[gpu1]:2222", True),
        ("[gpu1]:2222", "gpu1", False),
        ("[gpu*]:2222", "[gpu1]:2222", True),
        ("[gpu*]:2222", "g:2222", False),
    ],
)
def test_a_name_stands_for_itself_or_for_a_pattern(names: str, name: str, is_known: bool):
    assert _known(f"{names} ssh-ed25519 {BLOB} a comment").keys_of(name) == ((KEY,) if is_known else ())


def test_all_keys_of_a_host_count_once_from_all_files():
    files = [f"a ssh-ed25519 {BLOB}\na ssh-rsa {OTHER}\n", f"a,b ssh-ed25519 {BLOB}\n"]
    assert [key.type for key in KnownHosts.parse(files).keys_of("a")] == ["ssh-ed25519", "ssh-rsa"]


def test_revoked_keys_are_known_as_such_and_authorities_are_no_hosts():
    known = _known(f"@revoked * ssh-ed25519 {BLOB}", f"@cert-authority * ssh-ed25519 {OTHER}")
    assert known.is_revoked(KEY)
    assert known.keys_of("a") == ()


def test_lines_that_are_no_entries_are_passed_over():
    assert (
        _known("", "# a comment", "a", "a ssh-ed25519", "a ssh-ed25519 ???", "|1|x|y ssh-rsa AAAA").keys_of(
            "a"
        )
        == ()
    )


def test_hashed_names_and_fingerprints_are_those_of_ssh_keygen(tmp_path: Path):
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-qt", "ed25519", "-N", "", "-f", str(key)], check=True)
    kind, blob = (tmp_path / "key.pub").read_text().split()[:2]
    file = tmp_path / "known_hosts"
    file.write_text(f"gpu1 {kind} {blob}\n[gpu1]:2222 {kind} {blob}\n")
    subprocess.run(["ssh-keygen", "-qHf", str(file)], check=True, capture_output=True)
    assert "gpu1" not in file.read_text()
    known = KnownHosts.parse([file.read_text()])
    shown = subprocess.run(["ssh-keygen", "-lf", f"{key}.pub"], capture_output=True, check=True, text=True)
    assert [each.fingerprint for each in known.keys_of("gpu1")] == [shown.stdout.split()[1]]
    assert known.keys_of("[gpu1]:2222") == known.keys_of("gpu1")
    assert known.keys_of("gpu2") == ()
