"""Print what the real argument parser of SGLang or of its router has: `python flags.py sglang|sglang_router`.

Runs where that program is installed. One JSON list of its flags, as argparse holds them after registration.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any


def parser_of(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False)
    if program == "sglang":
        register_again()
        from sglang.srt.server_args import ServerArgs

        ServerArgs.add_cli_args(parser)
    else:
        from sglang_router.router_args import RouterArgs

        RouterArgs.add_cli_args(parser)
    return parser


def register_again() -> None:
    """Let older releases register model kinds that the newer transformers of the testbed has itself."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    register = CONFIG_MAPPING.register
    CONFIG_MAPPING.register = lambda key, value, exist_ok=False: register(key, value, exist_ok=True)


def described(action: argparse.Action) -> dict[str, Any]:
    kind = getattr(action.type, "__name__", None)
    return {
        "spellings": [option.lstrip("-") for option in action.option_strings],
        "type": kind,
        "nargs": action.nargs,
        "choices": None if action.choices is None else [plain(each) for each in action.choices],
        "default": plain(action.default),
        "dest": action.dest,
        "is_required": action.required,
        "action": type(action).__name__,
    }


def plain(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float) else repr(value)


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SGLang prints on the way is no part of the answer
    json.dump([described(action) for action in parser_of(sys.argv[1])._actions], answers)
    answers.close()
