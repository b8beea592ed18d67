from __future__ import annotations

from dataclasses import replace

import pytest

from runtime.bootstrap.registry import RankRecord, ServerShape
from runtime.control.compat import Facts, hello_mismatch, mismatch
from runtime.control.messages import Hello
from runtime.kv.layout import KVLayout

_LAYOUT = KVLayout(num_layers=30, num_pages=9, page_size=16, num_kv_heads=3, head_dim=64, dtype_bytes=4)
_OURS = Facts.of_pool(_LAYOUT, "float32", num_kv_heads=3)
_HELLO = Hello(
    version=2,
    backend="tcp",
    attn_tp_size=1,
    attn_dp_size=1,
    num_layers=30,
    num_pages=500,
    page_size=16,
    num_kv_heads=3,
    head_dim=64,
    dtype="float32",
    endpoints=(b"",),
    verify_kv=False,
)


def test_pools_that_differ_in_pages_alone_fit():
    assert hello_mismatch(_HELLO, _OURS, backend="tcp") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"version": 1}, "version 2 of the control protocol, decode 1"),
        ({"backend": "nixl"}, "the backend `tcp`, decode with `nixl`"),
        ({"page_size": 64}, "prefill has the page size 16, decode 64"),
        ({"dtype": "bfloat16"}, "prefill has the KV dtype float32, decode bfloat16"),
        ({"num_layers": 24}, "layers=30,kv_heads=3,head_dim=64, decode layers=24,kv_heads=3,head_dim=64"),
    ],
)
def test_each_difference_is_named(fields, words):
    assert words in (hello_mismatch(replace(_HELLO, **fields), _OURS, backend="tcp") or "")


def test_all_differences_are_named_together():
    sentence = mismatch(prefill=_OURS, decode=replace(_OURS, page_size=1, dtype="bfloat16"))
    assert sentence is not None
    assert "page size" in sentence
    assert "KV dtype" in sentence
    assert "wrong text" in sentence


def test_a_server_that_tells_no_layout_is_not_trusted():
    record = RankRecord(rank_ip="x", rank_port=1, page_size=16, kv_cache_dtype="float32")
    facts = Facts.of_server(ServerShape.of(record))
    assert "KV layout unknown" in (mismatch(prefill=facts, decode=_OURS) or "")
