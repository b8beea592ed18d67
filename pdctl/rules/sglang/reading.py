"""How the rules for SGLang read what a role is given."""

from __future__ import annotations

from pdctl.flagtable.versions import VersionKey, version_key
from pdctl.rules.base import Stated, stated_arg
from pdctl.topology.model import Role, Topology

# The newest release that these rules were read from; a document that names no version is checked against it.
NEWEST_READ = "0.5.23"

DCP_FLAGS = ("dcp-size", "decode-context-parallel-size")

# Bools as SGLang reads them from its environment (srt/environ.py, EnvBool).
_TRUE_WORDS = frozenset({"true", "1", "yes", "y"})


def version_of(topology: Topology) -> VersionKey:
    return version_key(topology.engine.version or NEWEST_READ) or _known(NEWEST_READ)


def is_at_most(topology: Topology, version: str) -> bool:
    """Whether the engine is that release or an older one."""
    return version_of(topology) <= _known(version)


def backend_of(topology: Topology) -> str:
    """The transfer backend that the engine ends up with: `mooncake_tcp` is Mooncake over sockets."""
    backend = topology.transfer.backend
    return "mooncake" if backend == "mooncake_tcp" else backend


def first_stated(topology: Topology, role: Role, *flags: str) -> Stated | None:
    """The first of several spellings of one setting that the document uses."""
    found = (stated_arg(topology, role, flag) for flag in flags)
    return next((each for each in found if each is not None), None)


def switch(topology: Topology, role: Role, flag: str) -> Stated | None:
    """Where a switch is turned on; None where it isn't."""
    stated = stated_arg(topology, role, flag)
    return stated if stated is not None and stated.value is True else None


def number(stated: Stated | None) -> int | None:
    """The whole number that was stated, for a flag or for a variable; None for anything else."""
    value = None if stated is None else stated.value
    if isinstance(value, str):
        try:
            return int(value.strip())
        except ValueError:
            return None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def word(stated: Stated | None) -> str | None:
    return stated.value if stated is not None and isinstance(stated.value, str) else None


def is_true(stated: Stated | None) -> bool:
    """Whether a variable that SGLang reads as a bool is set to true."""
    return stated is not None and str(stated.value).strip().lower() in _TRUE_WORDS


def num_experts_groups(topology: Topology, role: Role) -> int:
    """Ranks that share the experts: every all-to-all backend makes it `tp` (`moe_hook`, `_a2a_ep_size`)."""
    return role.parallel.tp if a2a_backend(topology, role) != "none" else role.parallel.ep


def a2a_backend(topology: Topology, role: Role) -> str:
    return word(stated_arg(topology, role, "moe-a2a-backend")) or "none"


def _known(version: str) -> VersionKey:
    key = version_key(version)
    assert key is not None, f"{version} is written in these rules"
    return key
