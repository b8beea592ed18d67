"""Say what one version of SGLang makes of command lines and models, by its own code. Runs inside the testbed.

Standard input and output are one JSON object a line: `{"question": [argument, ...], "env": {}}`, with
variables for this question alone. First of all, unasked, come `flags`, as its parser holds them, and
`variables`, those that it declares. Questions are:

    parse ARGV       `values`, what the parser made of it
    resolve ARGV     `values`, what it is after the resolution that a server does before it loads a model
    ports ARGV       `values`, the ports that the processes of a server will use, by name
    model TYPE ARCHITECTURE
                     `values`, what SGLang takes a model for; see model_facts.py

or `error`, what SGLang said when it refused.
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

import flags
import model_facts
import torch

# What a GPU would answer: some releases ask it for its generation when a model has sparse attention.
HOPPER = (9, 0)


def main() -> None:
    tolerate_known_models()
    torch.cuda.get_device_capability = lambda _device=None: HOPPER
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    say({"flags": flags.described(parser), "variables": registered_variables()})
    for line in sys.stdin:
        asked = json.loads(line)
        with variables(asked.pop("env", {})):
            ((question, arguments),) = asked.items()
            say(answer(parser, question, arguments))


def tolerate_known_models() -> None:
    """Older releases register models that the testbed's transformers has by now; it would refuse them."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    register = CONFIG_MAPPING.register
    CONFIG_MAPPING.register = lambda key, value, exist_ok=False: register(key, value, exist_ok=True)


def answer(parser: argparse.ArgumentParser, question: str, arguments: list[str]) -> dict:
    if question != "model":
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                values = vars(parser.parse_args(arguments))
        except SystemExit:
            return {"error": said.getvalue().strip().splitlines()[-1]}
        if question == "parse":
            return {"values": plain(values)}
    try:
        return {"values": plain(ANSWERS[question](arguments))}
    except BaseException as error:  # SGLang refuses with assertions, ValueErrors and SystemExit alike
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name} {where.name}"
        return {"error": f"{type(error).__name__}: {error} ({place})"}


def registered_variables() -> list[str]:
    from sglang.srt.environ import Envs

    return sorted(name for name in vars(Envs) if not name.startswith("_"))


def resolved(argv: list[str]) -> dict:
    """Releases before 0.5.20 resolve while they make the record, and its fields are the result."""
    from sglang.srt.server_args import ServerArgs, prepare_server_args

    args = prepare_server_args(argv)
    is_separate = "resolve_once" in vars(ServerArgs)
    if is_separate:
        args.resolve_once()
    args.check_server_args()
    return args.resolved_dict() if is_separate else vars(args)


def ports(argv: list[str]) -> dict[str, int]:
    """Of a leader; with the model path `none`, no model is looked at."""
    from sglang.srt.server_args import DP_ATTENTION_HANDSHAKE_PORT_DELTA, PortArgs, prepare_server_args

    args = prepare_server_args(argv)
    places = PortArgs.init_new(args)
    rendezvous = args.dist_init_addr
    base = int(rendezvous.rpartition(":")[2]) if rendezvous else args.port
    names = {
        "tokenizer": places.tokenizer_ipc_name,
        "detokenizer": places.detokenizer_ipc_name,
        "rpc": places.rpc_ipc_name,
        "scheduler-metrics": places.metrics_ipc_name,
        "scheduler": places.scheduler_input_ipc_name,
        "loads": places.load_collector_ipc_name,
    }
    found = {name: int(place.rpartition(":")[2]) for name, place in names.items()}
    return {**found, "handshake": base + DP_ATTENTION_HANDSHAKE_PORT_DELTA}


ANSWERS = {"resolve": resolved, "ports": ports, "model": lambda arguments: model_facts.of(*arguments)}


def plain(values: dict) -> dict:
    return {
        name: value if isinstance(value, str | int | float | list | dict | None) else repr(value)
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
    answers.write(json.dumps(value, default=str) + "\n")
    answers.flush()


if __name__ == "__main__":
    # SGLang logs and prints while it resolves; answers keep standard output to themselves.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    main()
