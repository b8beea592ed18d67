"""Where SGLang and its router declare their flags, from 0.5.9 and 0.3.2 on."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from itertools import chain

from pdctl.flagtable.model import Flag, FlagTable
from pdctl.inspection.annotated import fields_of, flags_of_fields
from pdctl.inspection.calls import flags_of_calls
from pdctl.inspection.declared import Reader, extended_lists
from pdctl.inspection.expressions import Evaluator, Scope
from pdctl.inspection.modules import Module, Modules, SourceTree

_SERVER_ARGS = "sglang.srt.server_args"
_CHOICES = "sglang.srt.arg_groups.choices"
_FIELDS = "sglang.srt.arg_groups.fields"
_NAMESPACES = (
    *("model", "serving", "parallel", "disagg", "device", "schedule", "memory"),
    *("spec", "exec_", "mm", "lora", "observability"),
)
_ROUTER_ARGS = "sglang_router.router_args"


class NoFlagsError(Exception):
    """The source tree has no such program, or one that declares its flags in another way."""


def inspect(program: str, version: str, source: SourceTree) -> FlagTable:
    """The flag table of `program` in `source`.

    Raises `NoFlagsError`, or SyntaxError for source of a newer Python than this one.
    """
    modules = Modules(source)
    return FlagTable.of(program, version, PROGRAMS[program](modules))


def _sglang(modules: Modules) -> tuple[Flag, ...]:
    server_args = _needed(modules, _SERVER_ARGS)
    classes = [*_namespace_classes(modules), *_classes(server_args, "ServerArgs")]
    found: dict[str, Flag] = {}
    defaults: dict[str, ast.expr] = {}
    for module, definition in classes:
        own_fields = list(fields_of(definition))
        defaults |= {ast.unparse(each.target): each.value for each in own_fields if each.value is not None}
        _add(found, flags_of_fields(definition, _reader(modules, module)))
    for _module, definition in _classes(server_args, "ServerArgs"):
        calls = _method(definition, "add_cli_args")
        _add(found, flags_of_calls(calls, _reader(modules, server_args), defaults=defaults))
    return _all(found, _SERVER_ARGS)


def _router(modules: Modules) -> tuple[Flag, ...]:
    module = _needed(modules, _ROUTER_ARGS)
    found: dict[str, Flag] = {}
    for _module, definition in _classes(module, "RouterArgs"):
        own_fields = fields_of(definition)
        defaults = {ast.unparse(each.target): each.value for each in own_fields if each.value is not None}
        calls = _method(definition, "add_cli_args")
        _add(found, flags_of_calls(calls, _reader(modules, module), defaults=defaults))
    return _all(found, _ROUTER_ARGS)


PROGRAMS: Mapping[str, Callable[[Modules], tuple[Flag, ...]]] = {
    "sglang": _sglang,
    "sglang_router": _router,
}


def _reader(modules: Modules, module: Module) -> Reader:
    sources = (module, modules.get(_CHOICES), modules.get(_SERVER_ARGS))
    extended = chain.from_iterable(extended_lists(each.tree) for each in sources if each is not None)
    scope = Scope(module=module, local={})
    return Reader(evaluator=Evaluator(modules), scope=scope, open_lists=frozenset(extended))


def _namespace_classes(modules: Modules) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The classes that `collect_input_fields` gathers: none before 0.5.20."""
    for name in _NAMESPACES:
        module = modules.get(f"{_FIELDS}.{name}")
        if module is not None:
            yield from ((module, each) for each in module.tree.body if isinstance(each, ast.ClassDef))


def _classes(module: Module, name: str) -> Iterator[tuple[Module, ast.ClassDef]]:
    """The class statement itself: 0.5.23 binds the name anew, to a class made of this one."""
    yield from (
        (module, each) for each in module.tree.body if isinstance(each, ast.ClassDef) and each.name == name
    )


def _method(definition: ast.ClassDef, name: str) -> ast.FunctionDef:
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == name:
            return statement
    raise NoFlagsError(f"`{definition.name}` has no `{name}`")


def _add(found: dict[str, Flag], flags: Iterator[Flag]) -> None:
    for flag in flags:
        found[flag.name] = flag


def _needed(modules: Modules, name: str) -> Module:
    module = modules.get(name)
    if module is None:
        raise NoFlagsError(f"{modules.source.label} has no module `{name}`")
    return module


def _all(found: dict[str, Flag], module: str) -> tuple[Flag, ...]:
    if not found:
        raise NoFlagsError(f"no flags found in `{module}`")
    return tuple(found.values())
