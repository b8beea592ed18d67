"""Flags from annotated fields, `name: A[type, Arg(…)] = default`: SGLang from 0.5.17 on.

The derivation is that of `add_cli_args_from_dataclass` in sglang/srt/arg_groups/arg_utils.py, 0.5.17 to
0.5.23.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from pdctl.flagtable.model import Flag
from pdctl.inspection.declared import Reader

_MARKS = ("A", "Annotated")


def fields_of(definition: ast.ClassDef) -> Iterator[ast.AnnAssign]:
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            yield statement


def flags_of_fields(definition: ast.ClassDef, reader: Reader) -> Iterator[Flag]:
    """Each field that has a flag, in the order of the class."""
    for field in fields_of(definition):
        flag = _flag_of(field, reader)
        if flag is not None:
            yield flag


def _flag_of(field: ast.AnnAssign, reader: Reader) -> Flag | None:
    match field.annotation:
        case ast.Subscript(value=ast.Name(id=mark), slice=ast.Tuple(elts=[kind, *metadata])) if (
            mark in _MARKS
        ):
            arg = _arg(metadata)
        case _:
            return None
    if arg is None or _is_true(arg.get("no_cli")):
        return None
    assert isinstance(field.target, ast.Name)
    name = field.target.id
    default = {"required": ast.Constant(value=True)} if field.value is None else {"default": field.value}
    own = ast.Constant(value=f"--{name.replace('_', '-')}")
    spelled = [arg.pop("cli_name", own), *_listed(arg.pop("aliases", None))]
    names = [str(reader.evaluator.value(each, reader.scope)) for each in spelled]
    return reader.flag(names, {**_derived(kind, arg), **default, "dest": ast.Constant(value=name)})


def _arg(metadata: list[ast.expr]) -> dict[str, ast.expr] | None:
    """The keywords of `Arg(…)`; a bare text is its help; None where neither is there."""
    for each in metadata:
        match each:
            case ast.Call(func=ast.Name(id="Arg"), args=args, keywords=keywords):
                named = {keyword.arg: keyword.value for keyword in keywords if keyword.arg is not None}
                return {**({"help": args[0]} if args else {}), **named}
            case ast.Constant(value=str()) | ast.JoinedStr() | ast.BinOp():
                return {"help": each}
            case _:
                pass
    return None


def _derived(kind: ast.expr, arg: dict[str, ast.expr]) -> dict[str, ast.expr]:
    """What `add_argument` gets for a field of type `kind`."""
    if "action" in arg:
        return {name: arg[name] for name in ("action", "help") if name in arg} | _action_keywords(arg)
    inner = _without_none(kind)
    parser = {"type": arg["type_parser"]} if "type_parser" in arg else None
    words = {name: arg[name] for name in ("help", "choices") if name in arg}
    match inner:
        case ast.Subscript(value=ast.Name(id="Literal"), slice=values):
            literals = values.elts if isinstance(values, ast.Tuple) else [values]
            words.setdefault("choices", ast.List(elts=literals))
            return {**words, **(parser or {"type": _type_of_constant(literals[0])})}
        case ast.Subscript(value=ast.Name(id="List" | "list"), slice=element) if parser is None:
            nargs = arg.get("nargs", ast.Constant(value="+"))
            return {**words, "type": _type_of(element), "nargs": nargs}
        case ast.Name(id="bool"):
            return {**words, "action": ast.Constant(value="store_true")}
        case _:
            few = {name: arg[name] for name in ("nargs", "required") if name in arg}
            return {**words, **few, **(parser or {"type": _type_of(inner)})}


def _action_keywords(arg: dict[str, ast.expr]) -> dict[str, ast.expr]:
    keywords = arg.get("action_kwargs")
    if not isinstance(keywords, ast.Dict):
        return {}
    pairs = zip(keywords.keys, keywords.values, strict=True)
    return {
        key.value: value
        for key, value in pairs
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    }


def _without_none(kind: ast.expr) -> ast.expr:
    """`Optional[X]`, `X | None` and `Union[X, None]` as X."""
    match kind:
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return inner
        case ast.BinOp(left=left, op=ast.BitOr(), right=ast.Constant(value=None)):
            return left
        case ast.Subscript(
            value=ast.Name(id="Union"), slice=ast.Tuple(elts=[inner, ast.Constant(value=None)])
        ):
            return inner
        case _:
            return kind


def _type_of(kind: ast.expr) -> ast.expr:
    """A word becomes text where the annotation is none of the plain types (`_infer_type_func`)."""
    is_plain = isinstance(kind, ast.Name) and kind.id in ("int", "float")
    return kind if is_plain else ast.Name(id="str")


def _type_of_constant(constant: ast.expr) -> ast.expr:
    value = constant.value if isinstance(constant, ast.Constant) else None
    return ast.Name(id=type(value).__name__ if isinstance(value, int | float) else "str")


def _listed(aliases: ast.expr | None) -> list[ast.expr]:
    return list(aliases.elts) if isinstance(aliases, ast.List | ast.Tuple) else []


def _is_true(expression: ast.expr | None) -> bool:
    return isinstance(expression, ast.Constant) and expression.value is True
