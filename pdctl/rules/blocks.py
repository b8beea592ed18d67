"""The `args` mappings of a document, each with the program that gets it and the flags that program has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from pdctl import plugins
from pdctl.diagnostics import Severity
from pdctl.flagtable.model import Flag
from pdctl.flagtable.shelf import ChosenTable, choose_table, load_flag_table
from pdctl.program import Program
from pdctl.topology.model import Args, Topology
from pdctl.topology.source import DocumentPath


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgsBlock:
    """One `args` mapping."""

    path: DocumentPath
    args: Args
    kind: str
    program: Program | None  # None: its kind doesn't exist, which another rule says
    chosen: ChosenTable | None  # None: the program has no flag tables
    owners: Mapping[str, str]  # setting that an owned flag writes: that flag

    @property
    def is_router(self) -> bool:
        return self.path[0] == "router"

    @property
    def label(self) -> str:
        """The version that the flags are held against: `sglang 0.5.23`."""
        return self.kind if self.chosen is None else self.chosen.table.label

    @property
    def compared_with(self) -> str:
        return f"by the flags of {self.label}"

    @property
    def severity(self) -> Severity:
        """How sure a fault is: another version may accept what this one doesn't."""
        return Severity.ERROR if self.chosen is not None and self.chosen.is_exact else Severity.WARNING

    def find(self, key: str) -> Flag | None:
        """The flag that the program's parser takes the key for; None also where it has no table."""
        return None if self.chosen is None else self.chosen.table.find(normal(key))

    def is_abbreviated(self, key: str) -> bool:
        return self.chosen is not None and self.chosen.table.flag(normal(key)) is None

    def longer(self, key: str) -> str:
        """What an abbreviated key stands for."""
        assert self.chosen is not None
        return self.chosen.table.abbreviated(normal(key))[0]

    def owned(self, key: str) -> str | None:
        """The flag of pdctl's own that the key sets, by that name, an alias or a retired twin."""
        name, flag = normal(key), self.find(key)
        if flag is not None:
            return self.owners.get(flag.setting)
        return name if self.program is not None and name in self.program.owned_flags else None

    def owns(self, key: str) -> bool:
        return self.owned(key) is not None


def blocks(topology: Topology) -> Iterator[ArgsBlock]:
    """In the order of a document."""
    kind = topology.engine.kind
    engine = plugins.program("engines", kind)
    chosen = choose_table(kind, topology.engine.version)
    owners = _owners(engine, chosen)
    for name, args in (
        ("defaults", topology.defaults.args),
        *((role.name, role.args) for role in topology.roles),
    ):
        yield ArgsBlock(
            path=(name, "args"), args=args, kind=kind, program=engine, chosen=chosen, owners=owners
        )
    router = topology.router
    program = plugins.program("routers", router.kind)
    router_table = choose_table(router.kind, router.version)
    yield ArgsBlock(
        path=("router", "args"),
        args=router.args,
        kind=router.kind,
        program=program,
        chosen=router_table,
        owners=_owners(program, router_table),
    )


def _owners(program: Program | None, chosen: ChosenTable | None) -> Mapping[str, str]:
    if program is None or chosen is None:
        return {}
    return _owners_in(program.owned_flags, chosen.table.program, chosen.table.version)


@cache
def _owners_in(owned_flags: frozenset[str], kind: str, version: str) -> Mapping[str, str]:
    """Where two owned flags are one, the one that is spelled as the table does."""
    table = load_flag_table(kind, version)
    assert table is not None  # it was chosen
    found = ((name, table.flag(name)) for name in sorted(owned_flags))
    known = [(name, flag) for name, flag in found if flag is not None]
    known.sort(key=lambda each: each[0] == each[1].name)
    return {flag.setting: name for name, flag in known}


def as_args(successor: str) -> str:
    """What a release says to use instead, as `args` spell it: `--x-{a,b}=y` is `x-a: y` and `x-b: y`."""
    flag, equals, value = successor.lstrip("-").partition(" ")[0].partition("=")
    head, brace, rest = flag.partition("{")
    inner, _, tail = rest.partition("}")
    names = [f"{head}{each}{tail}" for each in inner.split(",")] if brace else [flag]
    return " and ".join(f"`{name}: {value}`" if equals else f"`{name}`" for name in names)


def normal(flag: str) -> str:
    """`--page_size=16` as `page-size`."""
    return flag.lstrip("-").replace("_", "-").partition("=")[0]
