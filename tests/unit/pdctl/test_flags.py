"""Arguments of the document as words of a command line."""

from __future__ import annotations

import argparse

import pytest

from pdctl.flags import canonical, merged, to_argv
from pdctl.flagtable.model import Flag, FlagTable, ValueType
from pdctl.topology.load import load_text
from pdctl.topology.model import ArgValue

TABLE = FlagTable.of(
    "sglang",
    "1",
    [
        Flag(name="tp-size", aliases=("tensor-parallel-size",), type=ValueType.INT),
        Flag(name="dllm-fdfo", nargs=0, negation="no-dllm-fdfo"),
        Flag(name="forward-hooks", type=ValueType.JSON),
        Flag(name="label", repeats=True),
        Flag(name="chunked-prefill-size", type=ValueType.INT),
        Flag(name="extra"),
    ],
)


def args_of(lines: str) -> dict[str, ArgValue]:
    head = "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: reference}\nprefill: {}\n"
    return dict(load_text(head + lines).require().decode.args)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("page-size: 16", ["--page-size", "16"]),
        ("trust-remote-code: true", ["--trust-remote-code"]),
        ("trust-remote-code: false", []),
        ("context-length: null", []),
        ("encoder-urls: [http://a, http://b]", ["--encoder-urls", "http://a", "http://b"]),
        ("sampling: {temperature: 0.7, top_k: 5}", ["--sampling", '{"temperature":0.7,"top_k":5}']),
        ("lora-paths: [plain, {lora_name: ä}]", ["--lora-paths", "plain", '{"lora_name":"ä"}']),
    ],
)
def test_a_value_of_the_document_becomes_words(line: str, words: list[str]) -> None:
    assert list(to_argv(args_of(f"decode: {{args: {{{line}}}}}\n"))) == words


@pytest.mark.parametrize("value", [-1, "-1", -0.5, "-.5", "-x", "--x", "-", "-1e5"])
def test_a_value_that_begins_with_a_dash_reaches_an_argument_parser(value: ArgValue) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--extra")
    assert parser.parse_args(list(to_argv({"extra": value}))).extra == str(value)


def test_a_switch_with_a_negation_is_switched_off_by_it() -> None:
    assert to_argv({"dllm-fdfo": False}, TABLE) == ("--no-dllm-fdfo",)
    assert to_argv({"dllm-fdfo": True}, TABLE) == ("--dllm-fdfo",)
    assert to_argv({"dllm-fdfo": None}, TABLE) == ()


def test_a_list_for_a_flag_that_reads_json_is_one_json_list() -> None:
    args = args_of("decode: {args: {forward-hooks: [{name: a}, b, 1]}}\n")
    assert to_argv(args, TABLE) == ("--forward-hooks", '[{"name":"a"},"b",1]')


def test_a_flag_that_repeats_is_said_once_for_each_value() -> None:
    assert to_argv({"label": ("a", "b")}, TABLE) == ("--label", "a", "--label", "b")


def test_layers_override_each_other_whichever_alias_they_use() -> None:
    defaults, role = {"tp-size": 1, "dllm-fdfo": True}, {"tensor-parallel-size": 2, "no-dllm-fdfo": True}
    together = merged(canonical(defaults, TABLE), canonical(role, TABLE))
    assert to_argv(together, TABLE) == ("--tp-size", "2", "--no-dllm-fdfo")


def test_what_the_table_does_not_know_is_passed_on_as_it_is() -> None:
    assert canonical({"other": 1}, TABLE) == {"other": 1} == canonical({"other": 1}, None)
