"""Find engines, routers and executors by name, and import one only when it is asked for.

A plug-in is one module: `pdctl/engines/<name>.py` here, or an entry point in the group `pdctl.engines`.
Engine and router modules have `PROGRAM`; executor modules have `create`.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Literal, cast

from pdctl.executors.base import Executor
from pdctl.program import Program
from pdctl.topology.model import Cluster

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

ExecutorFactory = Callable[[Cluster, Mapping[str, str]], Executor]
Family = Literal["engines", "routers", "executors"]

# Modules of a family's folder that others build on; they name no plug-in.
_SHARED_MODULES = frozenset(
    {
        "base",
        "flags",
        "answers",
        "ask_call",
        "fan_out",
        "kept_plan",
        "look_call",
        "log_stream",
        "lost",
        "machines",
        "archive",
        "calls",
        "link",
        "lock_call",
        "remote_command",
        "fabric_transport",
        "known_hosts",
        "openssh_transport",
        "ssh_addresses",
        "ssh_faults",
        "ssh_login",
        "ssh_operator",
        "ssh_patterns",
        "shell",
        "shimmed",
        "streams",
    }
)


def names(family: Family) -> tuple[str, ...]:
    """Every name of a family, sorted. Imports the family's package, none of its plug-ins."""
    package = importlib.import_module(f"pdctl.{family}")
    shipped = {module.name for module in pkgutil.iter_modules(package.__path__)} - _SHARED_MODULES
    return tuple(sorted(shipped | {point.name for point in _entry_points(family)}))


def exists(family: Family, name: str) -> bool:
    """Whether there is a plug-in of that name. Cheaper than `names`, which reads all that is installed."""
    if (
        name.isidentifier()
        and name not in _SHARED_MODULES
        and find_spec(f"pdctl.{family}.{name}") is not None
    ):
        return True
    return any(point.name == name for point in _entry_points(family))


def program(family: Literal["engines", "routers"], name: str) -> Program | None:
    """The engine or router of that name, None where there is none."""
    module = _find(family, name)
    return None if module is None else cast(Program, getattr(module, "PROGRAM"))  # noqa: B009 - not on ModuleType


def executor_factory(name: str) -> ExecutorFactory | None:
    module = _find("executors", name)
    return None if module is None else cast(ExecutorFactory, getattr(module, "create"))  # noqa: B009


def _find(family: Family, name: str) -> ModuleType | None:
    if not name.isidentifier() or name in _SHARED_MODULES:
        return None
    qualified = f"pdctl.{family}.{name}"
    try:
        return importlib.import_module(qualified)
    except ModuleNotFoundError as error:
        if error.name != qualified:  # the plug-in is there, but something that it needs is not
            raise
    outside = next((point for point in _entry_points(family) if point.name == name), None)
    return None if outside is None else cast(ModuleType, outside.load())


def _entry_points(family: Family) -> EntryPoints:
    return _installed(family, tuple(sys.path))


@functools.cache
def _installed(family: Family, _where: tuple[str, ...]) -> EntryPoints:
    # Imported here: it costs 20 ms and reads every installed package; names that we ship never need it.
    from importlib.metadata import entry_points

    return entry_points(group=f"pdctl.{family}")
