"""Say what SGLang makes of command lines, by its own parser and its own resolution. Runs inside the testbed.

Standard input and output are one JSON object a line. In: `argv`; `env`, variables for this line alone;
`resolve`, whether to go on to the resolution that a server does before it loads the model. Out, first of all:
`flags`, the option strings of this version, and `variables`, those that it declares. Then for each line
`values`, what the parser or the resolution made of it, or `error`, what SGLang said when it refused.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path


def main() -> None:
    tolerate_known_models()
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    say({"flags": sorted(parser._option_string_actions), "variables": registered_variables()})
    for line in sys.stdin:
        asked = json.loads(line)
        with variables(asked.get("env", {})):
            say(answer(parser, asked))


def tolerate_known_models() -> None:
    """Older versions register models that this transformers has by now; it would refuse them."""
    from transformers import AutoConfig

    register = AutoConfig.register
    AutoConfig.register = lambda name, config, exist_ok=False: register(name, config, exist_ok=True)


def answer(parser: argparse.ArgumentParser, asked: dict) -> dict:
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            values = vars(parser.parse_args(asked["argv"]))
    except SystemExit:
        return {"error": said.getvalue().strip().splitlines()[-1]}
    if not asked.get("resolve"):
        return {"values": plain(values)}
    try:
        return {"values": plain(resolved(asked["argv"]))}
    except BaseException as error:  # SGLang refuses with assertions, ValueErrors and SystemExit alike
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name} {where.name}"
        return {"error": f"{type(error).__name__}: {error} ({place})"}


def registered_variables() -> list[str]:
    from sglang.srt.environ import Envs

    return sorted(name for name in vars(Envs) if not name.startswith("_"))


def resolved(argv: list[str]) -> dict:
    from sglang.srt.server_args import prepare_server_args

    args = prepare_server_args(argv)
    args.resolve_once()
    args.check_server_args()
    return args.resolved_dict()


def plain(values: dict) -> dict:
    return {
        name: value if isinstance(value, (str, int, float, bool, list, type(None))) else repr(value)
        for name, value in values.items()
    }


@contextlib.contextmanager
def variables(env: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(env)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def say(value: dict) -> None:
    answers.write(json.dumps(value) + "\n")
    answers.flush()


if __name__ == "__main__":
    # SGLang logs and prints while it resolves; answers keep standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
