"""The wish for an attention-DP rank, in SGLang's words."""

from __future__ import annotations

import re

import pytest

from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields
from runtime.engine.server.routed_rank import read_routed_rank, with_header
from runtime.engine.settings import parse_settings


def read(body, *, attn_dp_size=4, header=None):
    argv = ["--model-path", "m", "--tp-size", "4", "--attn-dp-size", str(attn_dp_size)]
    return read_routed_rank(with_header(Fields(body), header), parse_settings(argv))


@pytest.mark.parametrize(
    ("body", "rank"),
    [
        ({}, None),
        ({"routed_dp_rank": None, "data_parallel_rank": None}, None),
        ({"routed_dp_rank": 3}, 3),
        ({"data_parallel_rank": 2}, 2),
        ({"routed_dp_rank": 0, "data_parallel_rank": 2}, 0),
    ],
)
def test_either_name_says_which_and_the_newer_wins(body, rank):
    assert read(body) == rank


def test_the_header_comes_before_the_body():
    assert read({"routed_dp_rank": 3}, header="1") == 1


def test_the_only_rank_may_be_named():
    assert read({"routed_dp_rank": 0}, attn_dp_size=1) == 0


@pytest.mark.parametrize(
    ("body", "header", "fault"),
    [
        ({"routed_dp_rank": 4}, None, "routed_dp_rank=4 out of range [0, 4)"),
        ({"data_parallel_rank": -1}, None, "data_parallel_rank=-1 out of range [0, 4)"),
        ({"routed_dp_rank": True}, None, "an integer"),
        ({"routed_dp_rank": "1"}, None, "an integer"),
        ({}, "one", "Invalid X-Data-Parallel-Rank header: must be an integer, got 'one'"),
        ({}, "9", "routed_dp_rank=9 out of range [0, 4)"),
    ],
)
def test_what_is_no_rank_here_is_refused(body, header, fault):
    with pytest.raises(RequestError, match=re.escape(fault)) as caught:
        read(body, header=header)
    assert caught.value.status == 400
