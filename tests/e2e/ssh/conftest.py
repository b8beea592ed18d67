"""Plain `ssh` into the hosts of the testbed, as a user types it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

import pytest

from tests.testbed.hosts.host import Host


@pytest.fixture
def ssh() -> Callable[..., subprocess.CompletedProcess[str]]:
    """`ssh(hosts, host, command)` gives what `ssh host command` gave."""

    def run(hosts, host: Host, command: str) -> subprocess.CompletedProcess[str]:
        words = ["ssh", "-n", "-o", "BatchMode=yes", "-F", hosts.ssh_config, host.name, command]
        return subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)

    return run
