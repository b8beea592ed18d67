"""Flags as releases of SGLang and its router declare them, in small."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.flagtable.model import Flag, FlagTable, Unread, ValueType
from pdctl.inspection.modules import Modules
from pdctl.inspection.programs import NoFlagsError, inspect

Written = Callable[..., Modules]

# As 0.5.9 and 0.5.12 do: a field for the default, a call for the flag.
CALLS = """
import argparse, dataclasses, json
from typing import Optional
CHOICES = ["auto", "gguf"]
def add_choices(more): CHOICES.extend(more)
@dataclasses.dataclass
class ServerArgs:
    model_path: str
    load_format: str = "auto"
    max_bs: Optional[int] = None
    hooks: Optional[str] = None
    @staticmethod
    def add_cli_args(parser):
        parser.add_argument("--model-path", "--model", type=str, required=True, help="The model.")
        parser.add_argument("--load-format", type=str, default=ServerArgs.load_format, choices=CHOICES)
        names = ["x"] + CHOICES
        parser.add_argument("--tool", choices=names, default=None)
        parser.add_argument("--max-bs", type=int, default=ServerArgs.max_bs, nargs="+")
        parser.add_argument("--hooks", type=json.loads, default=ServerArgs.hooks)
        parser.add_argument("--trace", action="store_true")
        parser.add_argument("--fuse", action=argparse.BooleanOptionalAction, default=None)
        parser.add_argument("--label", action="append")
        parser.add_argument("--graph", type=read_graph)
        if True:
            parser.add_argument("--seed", type=int, default=look_up())
        parser.add_argument("--old", action=DeprecatedAction, help="Note: set `--tool` to 'x' instead.")
        parser.add_argument("--gone", action=DeprecatedAction, error_message="use --tool")
        parser.add_argument("--older", action="store_true", help="[Deprecated] Use --tool=gguf instead.")
        parser.add_argument("--bs", type=int, dest="max_bs", default=argparse.SUPPRESS,
                            action=DeprecatedAliasStoreAction, new_flag="--max-bs")
"""

# As 0.5.17 does, and 0.5.20 and later in modules of their own.
FIELDS = """
from typing import Annotated as A, List, Literal, Optional, Union
import argparse, json
from sglang.srt.arg_groups.choices import CHOICES
class Model:
    model_path: A[str, Arg(help="The model.", aliases=["--model"])]
    load_format: A[str, Arg(help="Format.", choices=CHOICES)] = "auto"
    trace: A[bool, "Whether to trace."] = False
    port: A[int, "Port." " More."] = 30000
    ratio: A[Optional[float], "Ratio."] = None
    urls: A[List[str], "URLs."] = field(default_factory=list)
    sizes: A[Optional[List[int]], "Sizes."] = None
    mode: A[Literal["null", "prefill"], "Mode."] = "null"
    levels: A[Optional[Literal[1, 2]], Arg(help="Level.")] = None
    hooks: A[Optional[List[dict]], Arg(help="Hooks.", type_parser=json_list_type)] = None
    limit: A[Optional[int], Arg(help="Limit.", type_parser=human_readable_int)] = None
    fuse: A[Optional[bool], Arg(help="Fuse.", action=argparse.BooleanOptionalAction)] = None
    tp_size: A[int, Arg(help="Width.", cli_name="--tensor-parallel-size", aliases=["--tp"])] = 1
    hidden: A[bool, Arg(help="Not a flag.", no_cli=True)] = False
    plain: int = 3
    targets: A[Optional[Union[set[str], List[str]]], Arg(help="Targets.", nargs="*")] = None
"""
SERVER = """
class ServerArgs:
    @staticmethod
    def add_cli_args(parser):
        add_cli_args_from_dataclass(parser, ServerArgs)
        parser.add_argument("--load-format", default=_declared_default("load_format"), choices=names())
ServerArgs = collected(ServerArgs)
def names():
    return ["only"]
"""


def read(written: Written, **texts: str) -> FlagTable:
    return inspect("sglang", "1", written(**texts).source)


def flag(table: FlagTable, name: str) -> Flag:
    found = table.flag(name)
    assert found is not None
    return found


@pytest.fixture
def calls(written: Written) -> FlagTable:
    return read(written, **{"sglang.srt.server_args": CALLS})


@pytest.fixture
def fields(written: Written) -> FlagTable:
    choices = 'CHOICES = ["auto", "gguf"]\nadd_choices = CHOICES.extend\n'
    return read(
        written,
        **{
            "sglang.srt.server_args": SERVER,
            "sglang.srt.arg_groups.choices": choices,
            "sglang.srt.arg_groups.fields.model": FIELDS,
        },
    )


@pytest.mark.parametrize(
    "expected",
    [
        Flag(name="model-path", aliases=("model",), is_required=True),
        Flag(name="load-format", choices=("auto", "gguf"), default="auto", is_open=True),
        Flag(name="tool", choices=("x", "auto", "gguf")),
        Flag(name="max-bs", type=ValueType.INT, nargs="+"),
        Flag(name="hooks", type=ValueType.JSON),
        Flag(name="trace", nargs=0, default=False),
        Flag(name="fuse", nargs=0, negation="no-fuse"),
        Flag(name="label", repeats=True),
        Flag(name="graph", type=ValueType.OPAQUE),
        Flag(name="seed", type=ValueType.INT, unread=(Unread.DEFAULT,)),
        Flag(name="old", nargs=0, is_deprecated=True, successor="--tool=x"),
        Flag(name="gone", nargs=0, is_deprecated=True, is_refused=True),
        Flag(name="older", nargs=0, default=False, is_deprecated=True, successor="--tool=gguf"),
        Flag(name="bs", type=ValueType.INT, dest="max_bs", is_deprecated=True, successor="--max-bs"),
    ],
    ids=lambda each: each.name,
)
def test_a_flag_of_a_call_is_read(calls: FlagTable, expected: Flag) -> None:
    assert flag(calls, expected.name) == expected


@pytest.mark.parametrize(
    "expected",
    [
        Flag(name="model-path", aliases=("model",), is_required=True),
        Flag(name="trace", nargs=0, default=False),
        Flag(name="port", type=ValueType.INT, default=30000),
        Flag(name="ratio", type=ValueType.FLOAT),
        Flag(name="urls", nargs="+", default=()),
        Flag(name="sizes", type=ValueType.INT, nargs="+"),
        Flag(name="mode", choices=("null", "prefill"), default="null"),
        Flag(name="levels", type=ValueType.INT, choices=(1, 2)),
        Flag(name="hooks", type=ValueType.JSON),
        Flag(name="limit", type=ValueType.COUNT),
        Flag(name="fuse", nargs=0, negation="no-fuse"),
        Flag(name="tensor-parallel-size", aliases=("tp",), type=ValueType.INT, default=1, dest="tp_size"),
        Flag(name="targets", nargs="*"),
    ],
    ids=lambda each: each.name,
)
def test_a_flag_of_a_field_is_read(fields: FlagTable, expected: Flag) -> None:
    assert flag(fields, expected.name) == expected


def test_a_field_without_a_flag_gives_none(fields: FlagTable) -> None:
    assert fields.flag("hidden") is None
    assert fields.flag("plain") is None


def test_a_call_behind_the_fields_has_the_last_word(fields: FlagTable) -> None:
    assert flag(fields, "load-format") == Flag(name="load-format", choices=("only",), default="auto")


def test_the_routers_flags_are_read_without_the_prefix_that_it_has_elsewhere(written: Written) -> None:
    source = """
    class RouterArgs:
        retries: int = 5
        @staticmethod
        def add_cli_args(parser, use_router_prefix=False):
            prefix = "router-" if use_router_prefix else ""
            group = parser.add_argument_group("Retries")
            group.add_argument(f"--{prefix}retries", type=int, default=RouterArgs.retries)
            group.add_argument(f"--{prefix}parser", choices=compiled_in())
    """
    table = inspect("sglang_router", "0.3.2", written(**{"sglang_router.router_args": source}).source)
    assert table.flags == (
        Flag(name="retries", type=ValueType.INT, default=5),
        Flag(name="parser", unread=(Unread.CHOICES,)),
    )


@pytest.mark.parametrize(
    "texts", [{}, {"sglang.srt.server_args": ""}, {"sglang.srt.server_args": "class ServerArgs: pass"}]
)
def test_source_without_flags_is_told(written: Written, texts: dict[str, str]) -> None:
    with pytest.raises(NoFlagsError):
        read(written, **texts)
