from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from pdctl.executors import ssh
from pdctl.topology.model import Cluster, Host, HostSsh, Ssh

_PLAN = """
import sys
from pdctl.executors import ssh
from pdctl.topology.model import Cluster, Host
cluster = Cluster(executor="ssh", nodes=(Host(name="n1", address="10.0.0.1"), Host(name="n2")))
assert [node.name for node in ssh.create(cluster, {}).acquire(cluster).nodes] == ["n1", "n2"]
print(sorted({"fabric", "paramiko", "cryptography"} & set(sys.modules)))
"""


def test_a_plan_of_stated_addresses_reaches_no_node_and_loads_no_transport():
    tree = str(Path(__file__).parents[4])
    done = subprocess.run(
        [sys.executable, "-c", _PLAN],
        env={**os.environ, "PYTHONPATH": tree},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"


def test_programs_without_an_interpreter_of_their_own_run_in_the_one_that_supervises_them():
    hosts = (Host(name="n1"), Host(name="n2", ssh=HostSsh(python="/opt/py")))
    cluster = Cluster(executor="ssh", nodes=hosts, ssh=Ssh(python="/usr/bin/python3.9"))
    nodes = ssh.create(cluster, {}).acquire(cluster).nodes
    assert [node.python for node in nodes] == ["/usr/bin/python3.9", "/opt/py"]
