"""What the `ssh` of this machine needs to reach a set: a key, and a configuration."""

from __future__ import annotations

import subprocess
from pathlib import Path

SSH_CONFIG = """\
Host *
  IdentityFile {base}/id
  IdentitiesOnly yes
  UserKnownHostsFile {base}/known_hosts
  StrictHostKeyChecking yes
  ConnectTimeout 10
  # The default exchange costs each side 60 ms of computing, on the two cores of all hosts together.
  KexAlgorithms curve25519-sha256
"""


def make_key(path: Path) -> str:
    """The public half, type and key alone."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", path], check=True)
    return " ".join(Path(f"{path}.pub").read_text().split()[:2])
