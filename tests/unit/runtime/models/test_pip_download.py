import sys
from pathlib import Path

from runtime.models.catalog import Wheel
from runtime.models.pip_download import failure_of, pip_argv, pip_version, received_bytes, useful_lines

WHEEL = Wheel(project="tiny-model", version="1.0", file_name="t.whl", size_bytes=1, sha256="0" * 64)


def test_command_fetches_one_wheel_without_its_requirements() -> None:
    assert pip_argv(WHEEL, Path("/d"), pip_version=(25, 0)) == [
        *(sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"),
        *("--no-cache-dir", "--progress-bar", "off", "--no-input", "--disable-pip-version-check"),
        *("--dest", "/d", "tiny-model==1.0"),
    ]


def test_pip_that_can_resume_is_told_to() -> None:
    argv = pip_argv(WHEEL, Path("/d"), pip_version=(25, 1))

    assert argv[argv.index("--resume-retries") + 1] == "20"


def test_version_of_the_installed_pip_is_two_numbers() -> None:
    assert pip_version() > (20, 0)


def test_received_bytes_are_those_of_the_larger_copy(tmp_path: Path) -> None:
    (tmp_path / "tmp/pip-unpack-x").mkdir(parents=True)
    (tmp_path / "wheel").mkdir()
    (tmp_path / "tmp/pip-unpack-x/t.whl").write_bytes(b"12345")
    (tmp_path / "wheel/t.whl").write_bytes(b"123")
    (tmp_path / "pip.log").write_bytes(b"1234567")

    assert received_bytes(tmp_path) == 5


def test_received_bytes_are_none_before_there_is_a_folder(tmp_path: Path) -> None:
    assert received_bytes(tmp_path / "absent") == 0


def test_offline_is_told_from_a_package_that_is_not_there() -> None:
    log = (
        "WARNING: Retrying after connection broken by 'NewConnectionError(...)': /simple/tiny/\n"
        "ERROR: No matching distribution found for tiny-model==1.0\n"
    )

    offline = failure_of(log, wheel=WHEEL, exit_code=1)
    absent = failure_of(log.splitlines()[1], wheel=WHEEL, exit_code=1)

    assert offline.message.startswith("could not reach the package index for `tiny-model==1.0`; pip says: ")
    assert "connection broken" in offline.message
    assert absent.message.startswith("the package index does not offer `tiny-model==1.0`")
    assert "pip download --no-deps tiny-model==1.0" in absent.hint


def test_full_disk_is_named() -> None:
    failure = failure_of("ERROR: [Errno 28] No space left on device", wheel=WHEEL, exit_code=1)

    assert failure.message == "the disk became full while pip downloaded `tiny-model==1.0`"


def test_silent_failure_gives_the_exit_code() -> None:
    assert failure_of("", wheel=WHEEL, exit_code=-9).message.endswith("pip says: exit code -9")


def test_useful_lines_are_the_last_marked_ones_each_once() -> None:
    log = "Looking in indexes: x\nWARNING: again\nWARNING: again\nERROR: first\nERROR: second\nERROR: third\n"

    assert useful_lines(log) == ["first", "second", "third"]
    assert useful_lines(log, limit=9) == ["again", "first", "second", "third"]


def test_useful_lines_of_a_traceback_are_its_end() -> None:
    assert useful_lines("Traceback:\n  File x\nValueError: no\n", limit=1) == ["ValueError: no"]
