"""Golden files: what users see is compared with a file; `--update-golden` writes what is seen now.
And what tests with real processes share: hosts of their own on this machine, a real Slurm, ports, waiting.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.hosts.host_set import DEBIAN_PACKAGES, HostSet, missing_programs, new_hosts
from tests.testbed.hosts.host_spec import HostSpec
from tests.testbed.ports import open_claims
from tests.testbed.slurm import cluster as slurm_clusters
from tests.testbed.slurm.cluster import SlurmCluster
from tests.testbed.slurm.spec import SlurmSpec
from tests.testbed.waiting import wait_until

GOLDEN = Path(__file__).parent / "golden"


def pytest_configure() -> None:
    """What every process that tests start takes over from this one."""
    # A test run in the background of a shell ignores Ctrl-C, one under nohup hang-ups.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    # Tests start our programs a thousand times: without byte code, each would compile them anew.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    # Threads of several processes that wait for each other on few cores take each other's time.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write golden files anew; read the diff")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """`golden("screens/plan.txt", text)` holds when the file has exactly that text."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.is_file(), f"no golden file {path}; `pytest --update-golden` writes it"
        assert text == path.read_text(encoding="utf-8")

    return compare


@pytest.fixture(scope="session")
def make_hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., HostSet]]:
    """`make_hosts(h1=HostSpec(), h2=HostSpec(login_shell="/usr/bin/fish"))` boots a set for the session.

    Whoever breaks a host of a set that is shared heals it.
    """
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("real hosts need root on Linux")
    missing = missing_programs()
    assert not missing, f"no {', '.join(missing)}; `apt-get install {' '.join(DEBIAN_PACKAGES)}`"
    with contextlib.ExitStack() as made:
        yield lambda **specs: made.enter_context(new_hosts(tmp_path_factory.mktemp("hosts"), specs))


@pytest.fixture(scope="session")
def two_hosts(make_hosts: Callable[..., HostSet]) -> HostSet:
    """`h1` and `h2`, plain, shared by all tests that leave hosts as they were."""
    return make_hosts(h1=HostSpec(), h2=HostSpec())


@pytest.fixture(scope="session")
def free_port() -> Iterator[Callable[..., int]]:
    """`free_port()` is nobody else's while the tests run; `free_port(2)` is the first of two neighbours."""
    with open_claims() as claims:
        yield claims.take


@pytest.fixture(scope="session", name="wait_until")
def waiting() -> Callable[..., object]:
    """`wait_until(look, "what", timeout_s=60)` gives what `look` gave when it gave something true."""
    return wait_until


@pytest.fixture(scope="module")
def make_slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[SlurmSpec], SlurmCluster]]:
    """`make_slurm(SlurmSpec(num_nodes=3))` starts a cluster for the tests of one file."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("a real Slurm needs root on Linux")
    missing, packages = slurm_clusters.missing_programs(), slurm_clusters.DEBIAN_PACKAGES
    assert not missing, f"no {', '.join(missing)}; `apt-get install {' '.join(packages)}`"
    with contextlib.ExitStack() as made:
        yield lambda spec: made.enter_context(
            slurm_clusters.new_cluster(tmp_path_factory.mktemp("slurm"), spec)
        )


@pytest.fixture(scope="module")
def slurm(make_slurm: Callable[[SlurmSpec], SlurmCluster]) -> SlurmCluster:
    """Eight nodes with eight accelerators each, for the tests of one file, which mend what they break."""
    return make_slurm(SlurmSpec())


@pytest.fixture
def healed_slurm(slurm: SlurmCluster) -> Iterator[SlurmCluster]:
    """`slurm`, and after the test no job is left and all nodes are idle, whatever it did."""
    yield slurm
    slurm.heal()
