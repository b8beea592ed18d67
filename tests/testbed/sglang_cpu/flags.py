"""Say what a real argument parser holds, as argparse has it after registration: a JSON object for each flag.

`python flags.py` prints those of the router that is installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any


def described(parser: argparse.ArgumentParser) -> list[dict[str, Any]]:
    return [_described(action) for action in parser._actions if "--help" not in action.option_strings]


def _described(action: argparse.Action) -> dict[str, Any]:
    kind = getattr(action.type, "__name__", None)
    return {
        "spellings": [option.lstrip("-") for option in action.option_strings],
        "type": kind,
        "nargs": action.nargs,
        "choices": None if action.choices is None else [_plain(each) for each in action.choices],
        "default": _plain(action.default),
        "dest": action.dest,
        "is_required": action.required,
        "action": type(action).__name__,
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


if __name__ == "__main__":
    from sglang_router.router_args import RouterArgs

    router = argparse.ArgumentParser()
    RouterArgs.add_cli_args(router)
    json.dump(described(router), sys.stdout)
