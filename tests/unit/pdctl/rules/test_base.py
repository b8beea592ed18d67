"""What rules see of a role's flags."""

from __future__ import annotations

import pytest

from pdctl.rules.base import Stated, stated_arg
from pdctl.topology.load import load_text

HEAD = """\
schema: pdctl/v1
name: demo
model: {path: x}
engine: {kind: sglang, version: "0.5.12.post1"}
prefill: {}
"""


def stated(defaults: str, decode: str, flag: str) -> Stated | None:
    text = f"{HEAD}defaults: {{args: {{{defaults}}}}}\ndecode: {{args: {{{decode}}}}}\n"
    topology = load_text(text).require()
    return stated_arg(topology, topology.decode, flag)


@pytest.mark.parametrize(
    ("defaults", "decode", "flag", "value", "path"),
    [
        ("page-size: 1", "", "page-size", 1, "defaults page-size"),
        ("page-size: 1", "page-size: 2", "page-size", 2, "decode page-size"),
        ("page-siz: 1", "", "page-size", 1, "defaults page-siz"),
        ("page-size: 1", "page-siz: 2", "page-size", 2, "decode page-siz"),
        (
            "speculative-draft-model: m",
            "",
            "speculative-draft-model-path",
            "m",
            "defaults speculative-draft-model",
        ),
        ("", "cuda-graph-max-bs: 3", "cuda-graph-max-bs-decode", 3, "decode cuda-graph-max-bs"),
        ("", "cuda-graph-max-bs-decode: 3", "cuda-graph-max-bs", 3, "decode cuda-graph-max-bs-decode"),
        ("my-own: 1", "", "my-own", 1, "defaults my-own"),
    ],
)
def test_a_flag_is_seen_by_whichever_name_it_is_stated(
    defaults: str, decode: str, flag: str, value: object, path: str
) -> None:
    found = stated(defaults, decode, flag)
    assert found is not None
    block, key = path.split()
    assert (found.value, found.path) == (value, (block, "args", key))


def test_nothing_on_the_role_takes_back_a_default() -> None:
    assert stated("page-size: 1", "page-size: null", "page-size") is None
    assert stated("", "", "page-size") is None
    assert stated("", "no-such: 1", "page-size") is None
