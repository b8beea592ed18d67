"""What a node says of itself: RDMA devices, accelerators, models, interpreters, room and limits."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from runtime.shim.record import RequestError
from runtime.shim.survey_devices import devices
from runtime.shim.survey_fabric import dma_buf, rdma_devices
from runtime.shim.survey_host import folder, limits
from runtime.shim.survey_model import model
from runtime.shim.survey_programs import program

OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15"
# No such hardware here: a program that answers as nvidia-smi does.
NVIDIA_SMI = """\
#!/bin/sh
case "$1" in
  --query-gpu*) cat <<END
0, GPU-aa, 570.86.15, 143771, 71000, NVIDIA H200
1, GPU-bb, 570.86.15, [N/A], [N/A], NVIDIA GH200, 480GB
END
  ;;
  *) echo "GPU-aa, PID, 70990, /usr/bin/python3, with a comma" ;;
esac
"""


def write_port(sysfs: Path, device: str, *, state: str, link_layer: str, gids: tuple[str, ...]) -> None:
    port = sysfs / "class/infiniband" / device / "ports/1"
    (port / "gids").mkdir(parents=True)
    (port / "state").write_text(f"{state}\n")
    (port / "link_layer").write_text(f"{link_layer}\n")
    for index, gid in enumerate(gids):
        (port / "gids" / str(index)).write_text(f"{gid}\n")


def test_rdma_devices_are_read_from_the_kernels_own_tree(tmp_path):
    nothing = "0000:0000:0000:0000:0000:0000:0000:0000"
    gid = "fe80:0000:0000:0000:0202:c9ff:fe07:0102"
    write_port(tmp_path, "mlx5_0", state="4: ACTIVE", link_layer="InfiniBand", gids=(gid,))
    write_port(tmp_path, "mlx5_1", state="1: DOWN", link_layer="Ethernet", gids=(nothing, nothing))
    port = {"number": 1, "state": "ACTIVE", "link_layer": "InfiniBand", "has_gid": True}
    down = {"number": 1, "state": "DOWN", "link_layer": "Ethernet", "has_gid": False}
    assert rdma_devices(str(tmp_path)) == [
        {"name": "mlx5_0", "ports": [port]},
        {"name": "mlx5_1", "ports": [down]},
    ]
    assert rdma_devices(str(tmp_path / "nothing")) == []


@pytest.mark.parametrize(
    ("driver", "kernel", "expected"),
    [
        (OPEN_DRIVER, "5.15.0-113-generic", "dma-buf"),
        (OPEN_DRIVER, "5.4.0", None),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15", "6.8.0", None),
        ("", "6.8.0", None),
    ],
)
def test_dma_buf_takes_the_open_driver_and_a_young_kernel(driver, kernel, expected):
    assert dma_buf(driver, kernel) == expected


def test_accelerators_and_processes_on_them_are_those_of_nvidia_smi(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text(NVIDIA_SMI.replace("PID", str(os.getpid())))
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    found = devices()
    assert found["problem"] is None
    assert found["gpus"] == [
        {
            "index": 0,
            "uuid": "GPU-aa",
            "driver": "570.86.15",
            "name": "NVIDIA H200",
            "total_bytes": 143771 << 20,
            "used_bytes": 71000 << 20,
        },
        {
            "index": 1,
            "uuid": "GPU-bb",
            "driver": "570.86.15",
            "name": "NVIDIA GH200, 480GB",
            "total_bytes": None,
            "used_bytes": None,
        },
    ]
    (process,) = found["processes"]
    assert (process["pid"], process["name"]) == (os.getpid(), "/usr/bin/python3, with a comma")


def test_a_driver_that_fails_is_told_in_its_own_words(tmp_path, monkeypatch):
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed: no driver'; exit 9\n")
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert devices()["problem"] == "`nvidia-smi` fails: NVIDIA-SMI has failed: no driver"
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    assert devices()["problem"] == "no `nvidia-smi`: No such file or directory"


def test_a_model_is_its_names_and_sizes(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for each in (first, second):
        (each / "more").mkdir(parents=True)
        (each / "config.json").write_text("{}")
        (each / "more/weights").write_bytes(b"x" * 1000)
    (first / ".cache").mkdir()
    (first / ".cache/lock").write_text("of a downloader")
    found = model(str(first))
    assert (found["problem"], found["num_files"], found["num_bytes"]) == (None, 2, 1002)
    assert found == model(str(second))
    (second / "more/weights").write_bytes(b"x" * 999)  # cut off
    assert model(str(second))["fingerprint"] != found["fingerprint"]


def test_a_model_may_be_one_file_or_a_folder_of_links(tmp_path):
    blob = tmp_path / "blob"
    blob.write_bytes(b"x" * 10)
    assert model(str(blob))["num_bytes"] == 10
    snapshot = tmp_path / "snapshot"
    snapshot.mkdir()
    (snapshot / "weights").symlink_to(blob)
    assert model(str(snapshot))["num_bytes"] == 10


def test_a_model_that_is_not_there_says_why(tmp_path):
    assert model(str(tmp_path / "nothing"))["problem"] == "it does not exist"
    assert model(str(tmp_path))["problem"] == "its folder is empty"
    (tmp_path / "weights").symlink_to(tmp_path / "blob-that-was-removed")
    assert model(str(tmp_path))["problem"] == "it does not exist"


def test_an_interpreter_tells_its_packages_without_importing_them(tmp_path):
    package = tmp_path / "heavy_engine"
    package.mkdir()
    (package / "__init__.py").write_text("raise SystemExit('it was imported')")
    (tmp_path / "Heavy_Engine-1.2.3.dist-info").mkdir()
    question = {
        "python": sys.executable,
        "packages": ["heavy_engine", "no_such_package"],
        "env": {"PYTHONPATH": str(tmp_path)},
    }
    found = program(question, cwd="/")
    assert found["version"] == ".".join(map(str, sys.version_info[:3]))
    assert found["packages"] == [
        {"name": "heavy_engine", "is_found": True, "version": "1.2.3"},
        {"name": "no_such_package", "is_found": False, "version": None},
    ]


def test_an_interpreter_is_asked_in_the_environment_that_its_process_will_have(tmp_path, monkeypatch):
    (tmp_path / "only_mine.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # of whoever calls: a started process doesn't see it
    (found,) = program({"python": sys.executable, "packages": ["only_mine"]}, cwd="/")["packages"]
    assert not found["is_found"]


@pytest.mark.parametrize(
    ("python", "problem"),
    [
        ("/nowhere/python", "No such file or directory"),
        ("/etc/passwd", "Permission denied"),
        ("/bin/false", "it fails with code 1"),
    ],
)
def test_an_interpreter_that_cannot_run_says_why(python, problem):
    assert program({"python": python}, cwd="/")["problem"] == problem


def test_room_is_that_of_the_nearest_folder_that_exists(tmp_path):
    found = folder(str(tmp_path / "not/yet/there"))
    stat = os.statvfs(tmp_path)
    assert found["problem"] is None
    assert found["total_bytes"] == stat.f_blocks * stat.f_frsize
    assert folder("/proc")["problem"] is not None or folder("/proc")["free_bytes"] == 0


def test_limits_are_those_of_this_process():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    found = limits()
    assert (found["open_files"], found["open_files_hard"]) == (soft, hard)


def test_a_question_of_another_form_is_refused():
    with pytest.raises(RequestError):
        program({"packages": []}, cwd="/")
