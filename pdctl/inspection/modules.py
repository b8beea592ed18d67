"""Python modules as syntax trees: what each name of a module is bound to, across imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

_MAX_HOPS = 10  # a name that is imported from where it is imported from …


class SourceTree(Protocol):
    """The Python files of a distribution; paths are as in a wheel: `sglang/srt/server_args.py`."""

    @property
    def label(self) -> str:
        """How messages call it."""
        ...

    def read(self, path: str) -> bytes | None:
        """The file at `path`; None where there is none."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Import:
    """A name that comes from another module; `name` is None where it is that module."""

    module: str
    name: str | None


Binding = ast.expr | ast.ClassDef | ast.FunctionDef | Import


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    name: str
    names: Mapping[str, Binding]
    tree: ast.Module


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """What a name means, and the module whose names it is written with."""

    module: Module
    binding: Binding


class Modules:
    """The modules of a source tree, each parsed when it is first asked for."""

    def __init__(self, source: SourceTree) -> None:
        self.source = source
        self._parsed: dict[str, Module | None] = {}

    def get(self, name: str) -> Module | None:
        if name not in self._parsed:
            self._parsed[name] = self._parse(name)
        return self._parsed[name]

    def lookup(self, module: Module, name: str) -> Bound | None:
        """Follow imports to where `name` is defined; None where the trail leaves the source tree."""
        bound = self._named(module, name)
        for _ in range(_MAX_HOPS):
            if bound is None or not isinstance(bound.binding, Import) or bound.binding.name is None:
                return bound
            bound = self.imported(bound.binding)
        return None

    def imported(self, what: Import) -> Bound | None:
        """One step: the name in the module that it is imported from."""
        module = self.get(what.module)
        return None if module is None or what.name is None else self._named(module, what.name)

    def _named(self, module: Module, name: str) -> Bound | None:
        binding = module.names.get(name)
        if binding is not None:
            return Bound(module=module, binding=binding)
        submodule = f"{module.name}.{name}"
        if self.get(submodule) is None:
            return None
        return Bound(module=module, binding=Import(module=submodule, name=None))

    def _parse(self, name: str) -> Module | None:
        path = name.replace(".", "/")
        for file, package in ((f"{path}.py", name.rpartition(".")[0]), (f"{path}/__init__.py", name)):
            text = self.source.read(file)
            if text is not None:
                tree = ast.parse(text, file)
                return Module(name=name, names=names_of(tree.body, package), tree=tree)
        return None


def names_of(body: Sequence[ast.stmt], package: str) -> dict[str, Binding]:
    """What the statements of a module or function bind, the later over the earlier; all branches count."""
    return dict(_bindings(flat(body), package))


def flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements in order, with those inside `if`, `try`, `with` and `for` behind their own."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.For):
            for part in ("body", "handlers", "orelse", "finalbody"):
                for inner in getattr(statement, part, ()):
                    yield from flat(inner.body if isinstance(inner, ast.ExceptHandler) else [inner])


def _bindings(statements: Iterable[ast.stmt], package: str) -> Iterator[tuple[str, Binding]]:
    for statement in statements:
        match statement:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name):
                yield name, statement
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                yield name, value
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                yield name, value
            case ast.Import():
                for each in statement.names:
                    whole = each.name if each.asname else each.name.partition(".")[0]
                    yield each.asname or whole, Import(module=whole, name=None)
            case ast.ImportFrom():
                source = _absolute(statement, package)
                for each in statement.names:
                    yield each.asname or each.name, Import(module=source, name=each.name)
            case _:
                pass


def _absolute(statement: ast.ImportFrom, package: str) -> str:
    """The module that `from … import` means, dots counted from the package it stands in."""
    parts = package.split(".")
    base = parts[: len(parts) - (statement.level - 1)] if statement.level else []
    return ".".join([*base, *([statement.module] if statement.module else [])])
