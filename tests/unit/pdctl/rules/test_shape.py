"""Sizes of one instance."""

from __future__ import annotations

from collections.abc import Callable

import pytest

Found = Callable[..., list[str]]


@pytest.mark.parametrize(("tp", "attn_dp"), [(8, 1), (8, 2), (8, 8), (6, 3)])
def test_attention_groups_of_equal_size_are_fine(found: Found, tp: int, attn_dp: int) -> None:
    assert found(f"decode: {{parallel: {{tp: {tp}, attn_dp: {attn_dp}}}}}\n", "PD201") == []


@pytest.mark.parametrize(("tp", "attn_dp"), [(8, 3), (4, 8), (1, 2)])
def test_attention_groups_must_divide_tp(found: Found, tp: int, attn_dp: int) -> None:
    assert found(f"decode: {{parallel: {{tp: {tp}, attn_dp: {attn_dp}}}}}\n", "PD201") == [
        f"error 1:37 `attn_dp: {attn_dp}` doesn't divide `tp: {tp}`"
    ]


def test_both_roles_are_looked_at(found: Found) -> None:
    lines = "prefill: {parallel: {tp: 3, attn_dp: 2}}\ndecode: {parallel: {tp: 5, attn_dp: 2}}\n"
    assert len(found(lines, "PD201")) == 2


def test_devices_must_be_what_parallel_needs(found: Found) -> None:
    assert found("decode: {devices: 4, parallel: {tp: 2, pp: 2}}\n", "PD202") == []
    assert found("decode: {devices: 4, parallel: {tp: 2}}\n", "PD202") == [
        "error 1:19 `decode` gives an instance 4 devices, its `parallel` needs 2"
    ]


def test_nodes_share_devices_evenly(found: Found) -> None:
    assert found("decode: {nodes: 9, parallel: {tp: 72}}\n", "PD203") == []
    assert found("decode: {nodes: 3, parallel: {tp: 8}}\n", "PD203") == [
        "error 1:17 8 devices can't be shared evenly by `nodes: 3`"
    ]


def test_an_instance_fits_its_nodes(found: Found) -> None:
    cluster = "cluster: {nodes: 4, devices_per_node: 8}\n"
    assert found(cluster + "decode: {nodes: 2, parallel: {tp: 16}}\n", "PD204") == []
    assert found(cluster + "decode: {parallel: {tp: 8}}\n", "PD204") == []
    assert found(cluster + "decode: {parallel: {tp: 16}}\n", "PD204") == [
        "error 2:25 an instance of `decode` needs 16 devices, 8 are there for it"
    ]


def test_nodes_without_devices_take_any_width(found: Found) -> None:
    assert found("decode: {parallel: {tp: 16}}\n", "PD204") == []


def test_experts_are_split_inside_tp(found: Found) -> None:
    assert found("decode: {parallel: {tp: 8, ep: 4}}\n", "PD205") == []
    assert found("decode: {parallel: {tp: 4, ep: 8}}\n", "PD205") == [
        "error 1:32 `ep: 8` is larger than `tp: 4`"
    ]


def test_an_uneven_split_of_experts_is_only_a_warning(found: Found) -> None:
    assert found("decode: {parallel: {tp: 4, ep: 3}}\n", "PD205") == [
        "warning 1:32 `ep: 3` doesn't divide `tp: 4`"
    ]
