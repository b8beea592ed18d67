from __future__ import annotations

import subprocess
import sys
import time

import pytest

from pdctl.executors.local import LocalShell, LocalStream, create, local_nodes
from pdctl.executors.shell import UnreachableError
from pdctl.topology.model import Cluster, Host


def _addresses(cluster: Cluster) -> list[str]:
    return [node.address for node in local_nodes(cluster).nodes]


def test_one_node_is_the_loopback_and_several_have_an_address_each():
    assert _addresses(Cluster(nodes=1)) == ["127.0.0.1"]
    assert _addresses(Cluster(nodes=3)) == ["127.0.1.0", "127.0.1.1", "127.0.1.2"]
    many = _addresses(Cluster(nodes=600))
    assert (len(set(many)), many[256], many[-1]) == (600, "127.0.2.0", "127.0.3.87")


def test_named_hosts_keep_their_names_devices_and_stated_addresses():
    hosts = (Host(name="a", devices=2), Host(name="b", address="127.0.9.9"))
    nodes = local_nodes(Cluster(nodes=hosts, devices_per_node=8)).nodes
    assert [(node.name, node.address, node.num_devices) for node in nodes] == [
        ("a", "127.0.1.0", 2),
        ("b", "127.0.9.9", 8),
    ]
    assert {node.python for node in nodes} == {sys.executable}


def test_the_state_directory_comes_from_the_environment_given(tmp_path):
    executor = create(Cluster(), {"PDCTL_STATE_DIR": str(tmp_path / "state")})
    assert executor.deployments() == ()
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["run"]


def test_a_command_gets_its_words_and_its_input_as_they_are():
    words = ["it's", "$HOME", "a b", ""]
    program = "import sys; print(sys.argv[1:], sys.stdin.read()); print('e', file=sys.stderr); sys.exit(3)"
    done = LocalShell().run([sys.executable, "-c", program, *words], stdin=b"in", timeout_s=10)
    assert (done.code, done.stdout, done.stderr) == (3, f"{words} in\n".encode(), b"e\n")


@pytest.mark.parametrize("program", ["/no/such", "/etc/passwd"])
def test_a_program_that_cannot_run_is_code_127(program):
    assert LocalShell().run([program], timeout_s=1).code == 127


def test_a_command_that_takes_too_long_is_unreachable_and_ended():
    started = time.monotonic()
    with pytest.raises(UnreachableError, match=r"no answer within 0\.2 s"):
        LocalShell().run(["sleep", "100"], timeout_s=0.2)
    assert time.monotonic() - started < 5


def test_put_makes_its_folder_and_replaces_a_file(tmp_path):
    path = tmp_path / "new" / "file"
    LocalShell().put(str(path), b"1")
    LocalShell().put(str(path), b"2")
    assert path.read_bytes() == b"2"
    assert (path.stat().st_mode & 0o077, list(path.parent.iterdir())) == (0, [path])


def test_a_followed_command_is_read_line_by_line_and_ends():
    stream = LocalShell().follow(["sh", "-c", "cat; echo; printf end"], stdin=b"a\nb")
    assert list(stream) == [b"a", b"b", b"end"]
    stream.close()


def test_a_followed_command_is_not_in_the_callers_session():
    """A Ctrl-C on the terminal is for pdctl, which then decides."""
    stream = LocalShell().follow([sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())"])
    assert list(stream) == [b"True"]


def test_closing_insists_on_a_command_that_ignores_term():
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "print('up', flush=True); time.sleep(99)"
    )
    stream = LocalStream([sys.executable, "-c", program], b"", close_grace_s=0.2)
    assert next(iter(stream)) == b"up"
    stream.close()
    stream.close()


def test_a_stream_that_is_never_read_is_closed_without_a_warning():
    program = (
        "import gc, warnings; warnings.simplefilter('error'); from pdctl.executors.local import LocalShell\n"
        "LocalShell().follow(['sleep', '99']).close(); gc.collect()"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
