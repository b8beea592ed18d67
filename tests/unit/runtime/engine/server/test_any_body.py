"""Whatever stands in a body, the answer is a 200 or a 400 that names a fault."""

from __future__ import annotations

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

KEYS = [
    *("text", "input_ids", "prompt", "messages", "sampling_params", "stream", "rid", "n", "stop", "echo"),
    *("max_tokens", "max_new_tokens", "temperature", "top_p", "top_k", "seed", "logprobs", "top_logprobs"),
    *("return_logprob", "top_logprobs_num", "logprob_start_len", "stream_options", "stop_token_ids"),
    *("role", "content", "type", "no_stop_trim", "skip_special_tokens", "ignore_eos", "bootstrap_room"),
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 300),
    st.sampled_from([2**63, -(2**63), 2**70, 1e300, -0.5, 0.5]),
    st.sampled_from(["", "a", "say:x", "user", "text", "\U0001f94a\x00"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=8,
)
BODIES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=8)
VALID = {
    "/generate": {"text": "say:x", "sampling_params": {"max_new_tokens": 4}},
    "/v1/completions": {"prompt": "say:x"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "say:x"}]},
}


@pytest.mark.parametrize("path", VALID)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES, is_based_on_valid=st.booleans())
def test_any_body_is_answered_or_refused_by_name(client, path, body, is_based_on_valid):
    reply = client.post(path, content=json.dumps(VALID[path] | body if is_based_on_valid else body))
    assert reply.status_code in (200, 400), reply.text
    if reply.status_code == 400:
        assert reply.json()["error"]["message"]


@pytest.mark.parametrize(
    "text", [b'"\\ud800"', b'"\xed\xa0\x80"', b"1e999", b"NaN", b"[" * 2000 + b"]" * 2000]
)
def test_what_is_json_only_to_some_is_refused(client, text):
    reply = client.post("/generate", content=b'{"text": ' + text + b"}")
    assert reply.status_code == 400
