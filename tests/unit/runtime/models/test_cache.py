from pathlib import Path

import pytest

from runtime.models.cache import cache_directory, cached_path, is_intact, resolve
from runtime.models.catalog import BuiltinModel
from runtime.models.errors import ModelUnavailable


def test_own_variable_beats_the_xdg_one() -> None:
    assert cache_directory({"PDCTL_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b"}) == Path("/a/models")


def test_xdg_variable_gets_a_folder_of_ours() -> None:
    assert cache_directory({"PDCTL_CACHE_DIR": "", "XDG_CACHE_HOME": "/b"}) == Path("/b/pdctl/models")


def test_without_variables_the_cache_lies_in_the_home_folder() -> None:
    assert cache_directory({}) == Path.home() / ".cache/pdctl/models"


def test_relative_folder_is_made_absolute_so_that_a_message_can_name_it() -> None:
    assert cache_directory({"PDCTL_CACHE_DIR": "here"}) == Path.cwd() / "here/models"


@pytest.mark.parametrize("path", ["/models/llama", "models/llama.gguf", "org/name"])
def test_path_without_the_prefix_is_left_as_it_is(path: str) -> None:
    assert resolve(path) == Path(path)


def test_builtin_name_gives_the_cached_file(model: BuiltinModel, directory: Path, content: bytes) -> None:
    cached_path(model, directory).write_bytes(content)

    assert resolve("builtin:tiny", catalog=[model], directory=directory) == directory / "Tiny.Q4_1.gguf"


def test_missing_model_is_refused_with_both_ways_to_get_it(model: BuiltinModel, directory: Path) -> None:
    with pytest.raises(ModelUnavailable) as caught:
        resolve("builtin:tiny", catalog=[model], directory=directory)

    assert caught.value.message == "the built-in model `tiny` is not in the cache"
    assert caught.value.hint == (
        "`pdctl models pull tiny`; without a network, copy `Tiny.Q4_1.gguf` "
        f"(sha256 {model.sha256}) to `{directory}/Tiny.Q4_1.gguf`"
    )
    assert str(caught.value) == f"{caught.value.message}\nhint: {caught.value.hint}"


def test_truncated_model_is_refused_with_both_sizes(
    model: BuiltinModel, directory: Path, content: bytes
) -> None:
    cached_path(model, directory).write_bytes(content[:-1])

    with pytest.raises(ModelUnavailable, match=f"has {len(content) - 1} bytes, not {len(content)}"):
        resolve("builtin:tiny", catalog=[model], directory=directory)


def test_one_flipped_byte_is_seen_by_the_full_check_only(
    model: BuiltinModel, directory: Path, content: bytes
) -> None:
    path = cached_path(model, directory)
    path.write_bytes(b"X" + content[1:])

    assert not is_intact(model, path)
    assert resolve("builtin:tiny", catalog=[model], directory=directory) == path
