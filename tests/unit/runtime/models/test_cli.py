import json
from pathlib import Path

import pytest

from runtime.models.cache import cached_path
from runtime.models.catalog import BuiltinModel
from runtime.models.cli import main


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, directory: Path) -> None:
    monkeypatch.setenv("PDCTL_CACHE_DIR", str(directory.parent))


def test_list_tells_what_is_not_in_the_cache(
    model: BuiltinModel, directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list"], catalog=[model]) == 0

    header, row = capsys.readouterr().out.splitlines()
    assert header.split() == ["NAME", "SIZE", "LICENCE", "CACHED", "PATH"]
    assert row.split() == ["tiny", "0.0", "MB", "Apache-2.0", "no", f"{directory}/Tiny.Q4_1.gguf"]


def test_list_as_json_has_the_facts_of_the_catalog(
    model: BuiltinModel, directory: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    cached_path(model, directory).write_bytes(content)

    assert main(["list", "--json"], catalog=[model]) == 0

    assert json.loads(capsys.readouterr().out) == [
        {
            "name": "tiny",
            "size_bytes": len(content),
            "sha256": model.sha256,
            "licence": "Apache-2.0",
            "origin": "https://example.org/tiny",
            "source": "tiny-model==1.0 on the Python package index",
            "cached": True,
            "path": f"{directory}/Tiny.Q4_1.gguf",
        }
    ]


@pytest.mark.parametrize("name", ["tiny", "builtin:tiny"])
def test_path_prints_the_cached_file(
    name: str, model: BuiltinModel, directory: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    cached_path(model, directory).write_bytes(content)

    assert main(["path", name], catalog=[model]) == 0
    assert capsys.readouterr().out == f"{directory}/Tiny.Q4_1.gguf\n"


def test_path_of_a_missing_model_is_an_error_with_a_hint(
    model: BuiltinModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["path", "tiny"], catalog=[model]) == 1

    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith(
        "error: the built-in model `tiny` is not in the cache\n\nhint: `pdctl models pull"
    )


def test_verify_reads_every_byte(
    model: BuiltinModel, directory: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    path = cached_path(model, directory)
    path.write_bytes(content)
    assert main(["verify", "tiny"], catalog=[model]) == 0

    path.write_bytes(b"X" + content[1:])
    assert main(["verify", "tiny"], catalog=[model]) == 1
    assert "is not what it should be" in capsys.readouterr().err


def test_remove_says_whether_there_was_something(
    model: BuiltinModel, directory: Path, content: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    cached_path(model, directory).write_bytes(content)

    assert main(["remove", "tiny"], catalog=[model]) == 0
    assert main(["remove", "tiny"], catalog=[model]) == 0
    assert capsys.readouterr().out == "`tiny` removed\n`tiny` was not in the cache\n"


def test_pull_with_json_tells_its_error_on_stdout(
    model: BuiltinModel, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pull", "tni", "--progress", "json"], catalog=[model]) == 1

    captured = capsys.readouterr()
    assert json.loads(captured.out) == {
        "event": "error",
        "message": "no built-in model is called `tni`",
        "hint": "built-in models: tiny",
    }
    assert captured.err == ""


def test_cache_that_is_not_a_folder_is_an_error_without_a_traceback(
    model: BuiltinModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PDCTL_CACHE_DIR", str(tmp_path / "file"))

    assert main(["pull", "tiny"], catalog=[model]) == 1
    assert "Not a directory" in capsys.readouterr().err
