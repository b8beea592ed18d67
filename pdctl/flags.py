"""Turn the document's `args` into argv."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from pdctl.flagtable.model import FlagTable, ValueType
from pdctl.topology.model import Args, ArgValue, ArgWord, Env, JsonArg

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")  # argparse takes these for values, as no flag looks like one


def merged(*layers: Args) -> dict[str, ArgValue]:
    """Later layers win, key by key."""
    return {name: value for layer in layers for name, value in layer.items()}


def merged_env(*layers: Env) -> dict[str, str]:
    return {name: value for layer in layers for name, value in layer.items()}


def canonical(args: Args, table: FlagTable | None) -> dict[str, ArgValue]:
    """Each flag by its own name: `tensor-parallel-size` as `tp-size`, `no-x: true` as `x: false`.

    Layers made so override each other whichever alias they use. What the table doesn't know stays.
    """
    return dict(_canonical(name, value, table) for name, value in args.items())


def to_argv(args: Args, table: FlagTable | None = None) -> tuple[str, ...]:
    """`{"page-size": 16, "verify-kv": true, "trace": false}` as `--page-size 16 --verify-kv`.

    True is the bare flag; False and None leave it out; a list is one flag with several values, a mapping is
    JSON. The program's table knows better for a few: a flag with a negation is switched off by it, a list for
    a flag that reads JSON is one JSON list, a flag that repeats is said once for each value.
    """
    return tuple(word for name, value in args.items() for word in _words(name, value, table))


def _canonical(name: str, value: ArgValue, table: FlagTable | None) -> tuple[str, ArgValue]:
    flag = None if table is None else table.flag(name)
    if flag is None:
        return name, value
    if name == flag.negation and isinstance(value, bool):
        return flag.name, not value
    return (name if name == flag.negation else flag.name), value


def _words(name: str, value: ArgValue, table: FlagTable | None) -> Iterator[str]:
    flag = None if table is None else table.flag(name)
    match value:
        case None:
            return
        case False:
            if flag is not None and flag.negation is not None and name != flag.negation:
                yield f"--{flag.negation}"
        case True:
            yield f"--{name}"
        case tuple() if flag is not None and flag.type is ValueType.JSON and flag.nargs is None:
            yield from _one(name, _json_list(value))
        case tuple() if flag is not None and flag.repeats and flag.nargs is None:
            for each in value:
                yield from _one(name, str(each))
        case (only,):
            yield from _one(name, str(only))
        case tuple():
            yield f"--{name}"
            yield from (str(each) for each in value)
        case _:
            yield from _one(name, str(value))


def _one(name: str, word: str) -> Iterator[str]:
    """A flag and its value, in one word where argparse would take the value for a flag."""
    if word.startswith("-") and len(word) > 1 and _NEGATIVE_NUMBER.fullmatch(word) is None:
        yield f"--{name}={word}"
    else:
        yield f"--{name}"
        yield word


def _json_list(items: tuple[ArgWord, ...]) -> str:
    return f"[{','.join(_json(each) for each in items)}]"


def _json(item: ArgWord) -> str:
    return item.text if isinstance(item, JsonArg) else json.dumps(item, ensure_ascii=False)
