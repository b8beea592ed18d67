"""Flags from calls of `add_argument`: the router, SGLang up to 0.5.12, and a few of every later one."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from pdctl.flagtable.model import Flag
from pdctl.inspection.declared import Declaration, Reader
from pdctl.inspection.modules import flat, names_of


def flags_of_calls(
    function: ast.FunctionDef, reader: Reader, *, defaults: Mapping[str, ast.expr]
) -> Iterator[Flag]:
    """Each `add_argument` of `function`, in order.

    `defaults` has the expressions behind `ServerArgs.x` and `_declared_default("x")`. A parameter of the
    function has its own default.
    """
    local: dict[str, object] = {**_parameters(function), **_first_bindings(function)}
    inner = replace(reader, scope=replace(reader.scope, local=local))
    for statement in flat(function.body):
        match statement:
            case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add_argument")) as call):
                names = [str(inner.evaluator.value(each, inner.scope)) for each in call.args]
                yield inner.flag(names, _declaration(call, defaults))
            case _:
                pass


def _declaration(call: ast.Call, defaults: Mapping[str, ast.expr]) -> Declaration:
    keywords = {each.arg: each.value for each in call.keywords if each.arg is not None}
    field = _field_named_by(keywords.get("default"))
    if field is not None and field in defaults:
        keywords["default"] = defaults[field]
    return keywords


def _field_named_by(default: ast.expr | None) -> str | None:
    match default:
        case ast.Attribute(value=ast.Name(id="ServerArgs" | "RouterArgs"), attr=field):
            return field
        case ast.Call(func=ast.Name(id="_declared_default"), args=[ast.Constant(value=str(field))]):
            return field
        case _:
            return None


def _parameters(function: ast.FunctionDef) -> dict[str, object]:
    arguments = function.args.args
    with_default = arguments[len(arguments) - len(function.args.defaults) :]
    return {each.arg: value for each, value in zip(with_default, function.args.defaults, strict=True)}


def _first_bindings(function: ast.FunctionDef) -> dict[str, object]:
    return {name: each for name, each in names_of(function.body, "").items() if isinstance(each, ast.expr)}
