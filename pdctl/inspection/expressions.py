"""The value of an expression, as far as the source alone tells it.

Constants, lists and their sums, names across modules, members of enums and classes, keys of tables,
f-strings, and functions without arguments by what they return last. All else is an `UnreadableError`: what
a program looks up in the environment, in compiled code or in another distribution.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import cast

from pdctl.inspection.modules import Bound, Import, Module, Modules, names_of

_MAX_DEPTH = 40
_MAX_EXPONENT = 64
_SEQUENCES = ("list", "tuple", "set", "frozenset", "sorted")


class UnreadableError(Exception):
    """The source doesn't say what a value is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where an expression stands: its module, and the names of the function around it."""

    module: Module
    local: Mapping[str, object]  # values, or expressions and imports that are followed when they are needed
    depth: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A member of an enum."""

    name: str
    value: object


_UNREAD = object()  # a value of a table that nobody has asked for


class Evaluator:
    def __init__(self, modules: Modules) -> None:
        self.modules = modules

    def value(self, expression: ast.expr, scope: Scope) -> object:
        if scope.depth > _MAX_DEPTH:
            raise UnreadableError("too deep")
        scope = replace(scope, depth=scope.depth + 1)
        match expression:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return self._items(items, scope)
            case ast.Dict():
                return self._table(expression, scope)
            case ast.Name(id=name):
                return self._name(name, scope)
            case ast.Attribute():
                return self._attribute(expression, scope)
            case ast.Call():
                return self._call(expression, scope)
            case ast.BinOp(left=left, op=ast.Add() | ast.BitOr(), right=right):
                return _sum(self.value(left, scope), self.value(right, scope))
            case ast.BinOp(left=left, op=ast.Mult() | ast.Pow() as operator, right=right):
                return _product(self.value(left, scope), operator, self.value(right, scope))
            case ast.Subscript(value=base, slice=ast.Constant(value=int(index))):
                return _item(_sequence(self.value(base, scope)), index)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return _negative(self.value(operand, scope))
            case ast.IfExp(test=test, body=body, orelse=other):
                return self.value(body if self.value(test, scope) else other, scope)
            case ast.ListComp(elt=element, generators=[loop]) if not loop.ifs:
                return self._comprehension(element, loop, scope)
            case ast.JoinedStr(values=parts):
                return "".join(str(self.value(part, scope)) for part in parts)
            case ast.FormattedValue(value=value):
                return self.value(value, scope)
            case _:
                raise UnreadableError(ast.unparse(expression))

    def resolve(self, expression: ast.expr, scope: Scope) -> Bound | None:
        """The definition that a name or a dotted name means."""
        match expression:
            case ast.Name(id=name):
                inner = scope.local.get(name)
                if isinstance(inner, Import):
                    return self.modules.imported(inner)
                return self.modules.lookup(scope.module, name)
            case ast.Attribute(value=base, attr=name):
                owner = self.resolve(base, scope)
                if owner is None or not isinstance(owner.binding, Import) or owner.binding.name is not None:
                    return None
                module = self.modules.get(owner.binding.module)
                return None if module is None else self.modules.lookup(module, name)
            case _:
                return None

    def _items(self, items: Iterable[ast.expr], scope: Scope) -> list[object]:
        found: list[object] = []
        for item in items:
            if isinstance(item, ast.Starred):
                found += _sequence(self.value(item.value, scope))
            else:
                found.append(self.value(item, scope))
        return found

    def _table(self, expression: ast.Dict, scope: Scope) -> dict[object, object]:
        """Keys are enough for the tables of parsers: what they name need not be read."""
        keys = [self.value(key, scope) for key in expression.keys if key is not None]
        return dict.fromkeys(keys, _UNREAD)

    def _name(self, name: str, scope: Scope) -> object:
        if name in scope.local and not isinstance(scope.local[name], Import):
            found = scope.local[name]
            return self.value(found, scope) if isinstance(found, ast.expr) else found
        bound = self.resolve(ast.Name(id=name), scope)
        return self._bound(bound, name, scope)

    def _bound(self, bound: Bound | None, name: str, scope: Scope) -> object:
        if bound is None:
            raise UnreadableError(name)
        if isinstance(bound.binding, ast.expr):
            return self.value(bound.binding, Scope(module=bound.module, local={}, depth=scope.depth))
        if isinstance(bound.binding, ast.ClassDef) and _is_enum(bound.binding):
            return self._members(bound, scope)
        raise UnreadableError(name)

    def _attribute(self, expression: ast.Attribute, scope: Scope) -> object:
        owner = self.resolve(expression.value, scope)
        if owner is not None and isinstance(owner.binding, ast.ClassDef):
            return self._class_attribute(owner, expression.attr, scope)
        whole = self.resolve(expression, scope)
        if whole is not None:
            return self._bound(whole, expression.attr, scope)
        base = self.value(expression.value, scope)
        if isinstance(base, Member) and expression.attr in ("name", "value"):
            return base.name if expression.attr == "name" else base.value
        raise UnreadableError(ast.unparse(expression))

    def _class_attribute(self, owner: Bound, name: str, scope: Scope) -> object:
        body = cast(ast.ClassDef, owner.binding).body
        binding = names_of(body, "").get(name)
        if not isinstance(binding, ast.expr):
            raise UnreadableError(name)
        local = {key: each for key, each in names_of(body, "").items() if isinstance(each, ast.expr)}
        return self.value(binding, Scope(module=owner.module, local=local, depth=scope.depth))

    def _members(self, owner: Bound, scope: Scope) -> list[object]:
        body = cast(ast.ClassDef, owner.binding).body
        return [
            Member(
                name=name,
                value=_or_unread(self, value, Scope(module=owner.module, local={}, depth=scope.depth)),
            )
            for name, value in names_of(body, "").items()
            if isinstance(value, ast.expr) and not name.startswith("_")
        ]

    def _comprehension(self, element: ast.expr, loop: ast.comprehension, scope: Scope) -> list[object]:
        if not isinstance(loop.target, ast.Name):
            raise UnreadableError(ast.unparse(loop.target))
        name = loop.target.id
        return [
            self.value(element, replace(scope, local={**scope.local, name: each}))
            for each in _sequence(self.value(loop.iter, scope))
        ]

    def _call(self, call: ast.Call, scope: Scope) -> object:
        for keyword in call.keywords:  # dataclasses.field, msgspec.field
            if keyword.arg == "default":
                return self.value(keyword.value, scope)
            if keyword.arg == "default_factory":
                return self._made_by(keyword.value, scope)
        match call:
            case ast.Call(func=ast.Name(id=name), args=[]) if name in _SEQUENCES:
                return []
            case ast.Call(func=ast.Name(id=name), args=[one]) if name in _SEQUENCES:
                return _sequence(self.value(one, scope))
            case ast.Call(func=ast.Attribute(value=base, attr="keys"), args=[]):
                return _sequence(self.value(base, scope))
            case ast.Call(func=ast.Attribute(value=base, attr="lower"), args=[]):
                return str(self.value(base, scope)).lower()
            case ast.Call(args=[]):
                return self._returned(call, scope)
            case _:
                raise UnreadableError(ast.unparse(call))

    def _made_by(self, factory: ast.expr, scope: Scope) -> object:
        if isinstance(factory, ast.Lambda):
            return self.value(factory.body, scope)
        return self.value(ast.Call(func=factory, args=[], keywords=[]), scope)

    def _returned(self, call: ast.Call, scope: Scope) -> object:
        """What a function returns last: where it returns early, a plug-in has been loaded."""
        bound = self.resolve(call.func, scope)
        if bound is None or not isinstance(bound.binding, ast.FunctionDef):
            raise UnreadableError(ast.unparse(call))
        body = bound.binding.body
        local = names_of(body, bound.module.name.rpartition(".")[0])
        results = [each.value for each in body if isinstance(each, ast.Return) and each.value is not None]
        if not results:
            raise UnreadableError(ast.unparse(call))
        return self.value(results[-1], Scope(module=bound.module, local=local, depth=scope.depth))


def _or_unread(evaluator: Evaluator, expression: ast.expr, scope: Scope) -> object:
    try:
        return evaluator.value(expression, scope)
    except UnreadableError:
        return _UNREAD


def _is_enum(definition: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith(("Enum", "Flag")) for base in definition.bases)


def _sequence(value: object) -> list[object]:
    if isinstance(value, list | tuple | dict):
        return list(cast("Iterable[object]", value))
    raise UnreadableError(f"{value!r:.80} is no sequence")


def _sum(left: object, right: object) -> object:
    if isinstance(left, str) and isinstance(right, str):
        return left + right
    return [*_sequence(left), *_sequence(right)]


def _product(left: object, operator: ast.operator, right: object) -> object:
    """Sizes are written as `64 * 1024` or `2**20`."""
    if isinstance(left, int) and isinstance(right, int):
        if isinstance(operator, ast.Mult):
            return left * right
        if 0 <= right <= _MAX_EXPONENT:
            return left**right
    raise UnreadableError(f"{left!r:.80} and {right!r:.80}")


def _item(values: list[object], index: int) -> object:
    if -len(values) <= index < len(values):
        return values[index]
    raise UnreadableError(f"item {index} of {len(values)}")


def _negative(value: object) -> object:
    if isinstance(value, int | float):
        return -value
    raise UnreadableError(f"-{value!r:.80}")
