"""From the words of a declaration, `add_argument` or `Arg`, to a `Flag`."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pdctl.flagtable.model import Choice, Default, Flag, ScalarDefault, Unread, ValueType
from pdctl.inspection.expressions import Evaluator, Member, Scope, UnreadableError

_TYPES = {
    "str": ValueType.TEXT,
    "nullable_str": ValueType.TEXT,
    "int": ValueType.INT,
    "float": ValueType.FLOAT,
    "json.loads": ValueType.JSON,
    "json_list_type": ValueType.JSON,
    "human_readable_int": ValueType.COUNT,
}
_SWITCHES = ("store_true", "store_false", "store_const", "count", "BooleanOptionalAction")
# Actions of SGLang's own (arg_groups/argparse_actions.py) that take no value unless `nargs` says otherwise.
_DEPRECATED_SWITCHES = ("DeprecatedAction", "DeprecatedStoreTrueAction", "DeprecatedStoreConstAction")
_DEPRECATED_IN_HELP = re.compile(r"\W*deprecated\b", re.IGNORECASE)
# "Use --x=y instead", "Please set `--x` to 'y' instead", "Alias for --x"
_SUCCESSOR_IN_HELP = re.compile(
    r"(?:use:?|set|alias for) `?(?P<flag>--[a-z0-9-]+)(?:=|` to ')?(?P<value>(?<=[='])[a-z0-9_]+)?",
    re.IGNORECASE,
)

Declaration = Mapping[str, ast.expr]  # keyword arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Makes flags of declarations that stand in one scope."""

    evaluator: Evaluator
    scope: Scope
    open_lists: frozenset[str]  # names of lists that plug-ins of the program extend

    def flag(self, names: Sequence[str], declaration: Declaration) -> Flag:
        action = self._action(declaration)
        spelled = [name.lstrip("-") for name in names]
        unread: list[Unread] = []
        choices = self._choices(declaration, unread)
        help_text = self._text(declaration, "help") or ""
        is_deprecated = action.startswith("Deprecated") or bool(_DEPRECATED_IN_HELP.match(help_text))
        return Flag(
            name=spelled[0],
            aliases=tuple(spelled[1:]),
            negation=f"no-{spelled[0]}" if action == "BooleanOptionalAction" else None,
            type=value_type(declaration.get("type")),
            nargs=self._nargs(declaration, action),
            choices=choices,
            default=self._default(declaration, action, unread),
            dest=_unless_own(self._text(declaration, "dest"), spelled[0]),
            repeats=action == "append",
            is_required=self._is(declaration, "required"),
            is_open=choices is not None and self._is_open(declaration["choices"]),
            is_deprecated=is_deprecated,
            is_refused=action == "DeprecatedAction" and "error_message" in declaration,
            successor=self._text(declaration, "new_flag")
            or (_successor(help_text) if is_deprecated else None),
            unread=tuple(unread),
        )

    def _action(self, declaration: Declaration) -> str:
        """The last part of its name: `store_true`, `BooleanOptionalAction`; `store` where none is said."""
        action = declaration.get("action")
        if action is None:
            return "store"
        if isinstance(action, ast.Constant):
            return str(action.value)
        return ast.unparse(action).rpartition(".")[2]

    def _nargs(self, declaration: Declaration, action: str) -> int | str | None:
        if "nargs" in declaration:
            return cast("int | str | None", self.evaluator.value(declaration["nargs"], self.scope))
        return 0 if action in _SWITCHES or action in _DEPRECATED_SWITCHES else None

    def _choices(self, declaration: Declaration, unread: list[Unread]) -> tuple[Choice, ...] | None:
        expression = declaration.get("choices")
        if expression is None:
            return None
        try:
            found = self.evaluator.value(expression, self.scope)
        except UnreadableError:
            unread.append(Unread.CHOICES)
            return None
        # None can't be typed on a command line.
        listed = [_plain(each) for each in cast("list[object]", found)]
        return tuple(each for each in listed if isinstance(each, str | int | float))

    def _default(self, declaration: Declaration, action: str, unread: list[Unread]) -> Default:
        if "default" not in declaration:
            return False if action in ("store_true", "DeprecatedStoreTrueAction") else None
        try:
            found = self.evaluator.value(declaration["default"], self.scope)
            return _default_of(found)
        except UnreadableError:
            if ast.unparse(declaration["default"]) != "argparse.SUPPRESS":  # it leaves the setting alone
                unread.append(Unread.DEFAULT)
            return None

    def _is_open(self, choices: ast.expr) -> bool:
        return any(isinstance(node, ast.Name) and node.id in self.open_lists for node in ast.walk(choices))

    def _text(self, declaration: Declaration, name: str) -> str | None:
        if name not in declaration:
            return None
        try:
            found = self.evaluator.value(declaration[name], self.scope)
        except UnreadableError:
            return None
        return found if isinstance(found, str) else None

    def _is(self, declaration: Declaration, name: str) -> bool:
        found = declaration.get(name)
        return isinstance(found, ast.Constant) and found.value is True


def value_type(expression: ast.expr | None) -> ValueType:
    return ValueType.TEXT if expression is None else _TYPES.get(ast.unparse(expression), ValueType.OPAQUE)


def extended_lists(tree: ast.Module) -> frozenset[str]:
    """Lists that a module offers to plug-ins: `add_x_choices = X.extend`, or a function that calls it."""
    return frozenset(
        node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr in ("extend", "append")
        and isinstance(node.value, ast.Name)
        and node.value.id.isupper()
    )


def _plain(value: object) -> object:
    return value.value if isinstance(value, Member) else value


def _default_of(value: object) -> Default:
    plain = _plain(value)
    if isinstance(plain, list):
        return tuple(_scalar(each) for each in cast("list[object]", plain))
    return _scalar(plain)


def _scalar(value: object) -> ScalarDefault:
    plain = _plain(value)
    if plain is None or isinstance(plain, str | int | float):
        return plain
    raise UnreadableError(f"{plain!r:.80}")


def _unless_own(dest: str | None, name: str) -> str | None:
    return None if dest == name.replace("-", "_") else dest


def _successor(help_text: str) -> str | None:
    """Of what the help says, only the flag to use instead, and its value."""
    found = _SUCCESSOR_IN_HELP.search(help_text)
    if found is None:
        return None
    return found["flag"] if found["value"] is None else f"{found['flag']}={found['value']}"
