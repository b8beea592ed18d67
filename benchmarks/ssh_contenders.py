"""One way to run a command on many hosts, timed from within; `ssh_fan_out.py` starts this, once per figure.

    python benchmarks/ssh_contenders.py NAME HOSTS_JSON

Prints `{"cold_s", "warm_s"}`: the first command on every host, and a second one. Libraries are imported, and
what can be read once is read, before the clock starts; programs are timed with their start, as people see it.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

COMMAND = ("uname", "-n")
AT_ONCE = 64
BIN = Path(sys.executable).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    """`folder` is for what a contender keeps, such as sockets."""

    names: list[str]
    addresses: list[str]
    port: int
    key: str
    config: str
    known_hosts: str
    folder: str


def pdctl(hosts: Hosts) -> Callable[[], None]:
    from pdctl.executors.fabric_transport.logins import FabricLogins
    from pdctl.executors.fan_out import at_once
    from pdctl.topology.model import HostSsh, Ssh

    ssh = Ssh(config=hosts.config)
    logins = FabricLogins(ssh, {"HOME": hosts.folder})
    shells = [logins.shell(HostSsh(), name) for name in hosts.names]

    def act() -> None:
        found = at_once(lambda shell: shell.run(COMMAND, timeout_s=60), shells, fan_out=ssh.fan_out)
        require(len(hosts.names), [each if isinstance(each, Exception) else each.code for each in found])

    return act


def asyncssh(hosts: Hosts) -> Callable[[], None]:
    import asyncssh as library

    loop = asyncio.new_event_loop()
    key = library.read_private_key(hosts.key)
    known = library.read_known_hosts(hosts.known_hosts)
    connections: dict[str, library.SSHClientConnection] = {}

    async def one(address: str, room: asyncio.Semaphore) -> int | None:
        async with room:
            if address not in connections:
                connections[address] = await library.connect(
                    address,
                    hosts.port,
                    username="root",
                    client_keys=[key],
                    known_hosts=known,
                    config=None,
                    agent_path=None,
                    kex_algs=["curve25519-sha256"],
                )
            return (await connections[address].run(" ".join(COMMAND))).exit_status

    async def each() -> list[int | None]:
        room = asyncio.Semaphore(AT_ONCE)
        return await asyncio.gather(*(one(address, room) for address in hosts.addresses))

    return lambda: require(len(hosts.names), loop.run_until_complete(each()))


def parallel_ssh(hosts: Hosts) -> Callable[[], None]:
    from pssh.clients import ParallelSSHClient

    client = ParallelSSHClient(
        hosts.addresses,
        user="root",
        port=hosts.port,
        pkey=hosts.key,
        allow_agent=False,
        pool_size=AT_ONCE,
    )

    def act() -> None:
        output = client.run_command(" ".join(COMMAND))
        client.join(output)
        require(len(hosts.names), [each.exit_code for each in output])

    return act


def clustershell(hosts: Hosts) -> Callable[[], None]:
    from ClusterShell.NodeSet import NodeSet
    from ClusterShell.Task import task_self

    task = task_self()
    task.set_info("fanout", AT_ONCE)
    task.set_info("ssh_options", f"-F {hosts.config} -oBatchMode=yes")

    def act() -> None:
        task.run(" ".join(COMMAND), nodes=NodeSet.fromlist(hosts.names))
        codes = {node: code for code, nodes in task.iter_retcodes() for node in nodes}
        require(len(hosts.names), list(codes.values()))

    return act


def openssh(hosts: Hosts) -> Callable[[], None]:
    return _ssh(hosts, [])


def openssh_multiplexed(hosts: Hosts) -> Callable[[], None]:
    path = f"ControlPath={hosts.folder}/%C"
    return _ssh(hosts, ["-o", "ControlMaster=auto", "-o", "ControlPersist=60", "-o", path])


def _ssh(hosts: Hosts, options: list[str]) -> Callable[[], None]:
    words = ["ssh", "-n", "-F", hosts.config, "-o", "BatchMode=yes", *options]

    def one(name: str) -> int:
        # A master keeps stderr open.
        nothing = subprocess.DEVNULL
        return subprocess.run(
            [*words, name, *COMMAND], stdout=nothing, stderr=nothing, check=False
        ).returncode

    def act() -> None:
        with ThreadPoolExecutor(AT_ONCE) as pool:
            require(len(hosts.names), list(pool.map(one, hosts.names)))

    return act


def pyinfra(hosts: Hosts) -> Callable[[], None]:
    login = {
        "ssh_port": hosts.port,
        "ssh_user": "root",
        "ssh_key": hosts.key,
        "ssh_known_hosts_file": hosts.known_hosts,
        "ssh_look_for_keys": False,
        "ssh_allow_agent": False,
    }
    inventory = Path(hosts.folder, "inventory.py")
    inventory.write_text(f"hosts = {[(address, login) for address in hosts.addresses]!r}\n")
    return _program([BIN / "pyinfra", "--parallel", str(AT_ONCE), inventory, "exec", "--", *COMMAND])


def ansible(hosts: Hosts) -> Callable[[], None]:
    inventory = Path(hosts.folder, "inventory.ini")
    inventory.write_text("\n".join(["[all]", *hosts.names]) + "\n")
    options = (
        f"-F {hosts.config} -o ControlMaster=auto -o ControlPersist=60s -o ControlPath={hosts.folder}/%C"
    )
    words = ["-i", inventory, "-m", "raw", "-a", " ".join(COMMAND), "-f", str(AT_ONCE), "--ssh-common-args"]
    return _program([BIN / "ansible", "all", *words, options])


def _program(argv: list[str | Path]) -> Callable[[], None]:
    def act() -> None:
        # Not a pipe, which a master that stays would keep open.
        with open("/dev/null", "wb") as nothing:  # noqa: PTH123
            require(1, [subprocess.run(argv, stdout=nothing, stderr=nothing, check=False).returncode])

    return act


def require(num_wanted: int, codes: Sequence[object]) -> None:
    if list(codes) != [0] * num_wanted:
        raise SystemExit(f"not every command ended well: {codes}")


CONTENDERS = {
    "pdctl": pdctl,
    "asyncssh": asyncssh,
    "OpenSSH": openssh,
    "OpenSSH multiplexed": openssh_multiplexed,
    "parallel-ssh": parallel_ssh,
    "ClusterShell": clustershell,
    "pyinfra": pyinfra,
    "Ansible raw": ansible,
}


def main(name: str, file: str) -> None:
    act = CONTENDERS[name](Hosts(**json.loads(Path(file).read_text())))
    began = time.perf_counter()
    act()
    between = time.perf_counter()
    act()
    print(json.dumps({"cold_s": between - began, "warm_s": time.perf_counter() - between}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
