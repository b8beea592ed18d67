from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.router.body import MAX_SEQUENCES, BodyError, read_body, with_rendezvous

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(), children, max_size=3),
    max_leaves=8,
)


@given(document=st.dictionaries(st.text(), JSON_VALUES, max_size=4), indent=st.sampled_from([None, 1]))
def test_rendezvous_is_added_and_everything_else_kept(
    document: dict[str, object], indent: int | None
) -> None:
    raw = json.dumps(document, indent=indent).encode() + b" \n"
    sent = with_rendezvous(read_body("/v1/chat/completions", raw), host="h", port=8998, rooms=[7])
    expected = document | {"bootstrap_host": "h", "bootstrap_port": 8998, "bootstrap_room": 7}
    assert json.loads(sent) == expected


def test_client_bytes_are_not_rewritten() -> None:
    raw = b'{ "seed": 123456789012345678901234567890, "temperature": 1e0 }'
    sent = with_rendezvous(read_body("/generate", raw), host="h", port=None, rooms=[7])
    assert sent.startswith(raw[:-1])
    assert json.loads(sent)["bootstrap_port"] is None


def test_braces_inside_strings_do_not_mislead() -> None:
    sent = with_rendezvous(read_body("/generate", b'{"text":"}{}}"}\t'), host="h", port=1, rooms=[7])
    assert json.loads(sent) == {
        "text": "}{}}",
        "bootstrap_host": "h",
        "bootstrap_port": 1,
        "bootstrap_room": 7,
    }


@pytest.mark.parametrize("key", ['"bootstrap_room"', '"bootstrap\\u005froom"'])
def test_rendezvous_of_the_client_is_overwritten_once(key: str) -> None:
    raw = f'{{"text":"a",{key}:1,"bootstrap_host":"evil"}}'.encode()
    sent = with_rendezvous(read_body("/generate", raw), host="h", port=1, rooms=[7])
    assert sent.count(b"bootstrap_room") == sent.count(b"bootstrap_host") == 1
    assert json.loads(sent) == {
        "text": "a",
        "bootstrap_host": "h",
        "bootstrap_port": 1,
        "bootstrap_room": 7,
    }


@pytest.mark.parametrize(
    ("path", "document", "num_sequences"),
    [
        ("/generate", {"text": "a"}, None),
        ("/generate", {"text": ["a", "b"]}, 2),
        ("/generate", {"text": ["a"]}, 1),
        ("/generate", {"input_ids": [1, 2, 3]}, None),
        ("/generate", {"input_ids": [[1, 2], [3]]}, 2),
        ("/generate", {"text": "a", "sampling_params": {"n": 3}}, None),
        ("/generate", {"text": ["a", "b"], "sampling_params": {"n": 2}}, 2),
        ("/v1/completions", {"prompt": "a"}, None),
        ("/v1/completions", {"prompt": [1, 2]}, None),
        ("/v1/completions", {"prompt": ["a", "b", "c"]}, 3),
        ("/v1/completions", {"prompt": [[1], [2]]}, 2),
        ("/v1/completions", {"prompt": ["a", "b"], "n": 2}, 4),
        ("/v1/completions", {"prompt": []}, None),
        ("/v1/chat/completions", {"messages": []}, None),
        ("/v1/chat/completions", {"messages": [], "n": 1}, None),
        ("/v1/chat/completions", {"messages": [], "n": 2}, 2),
        ("/v1/chat/completions", {"messages": [], "n": "2"}, None),
    ],
)
def test_batches_are_counted_as_sglang_counts_them(
    path: str, document: dict[str, object], num_sequences: int | None
) -> None:
    assert read_body(path, json.dumps(document).encode()).num_sequences == num_sequences


def test_batch_gets_lists_of_equal_length() -> None:
    body = read_body("/generate", b'{"text":["a","b"]}')
    sent = json.loads(with_rendezvous(body, host="h", port=1, rooms=[7, 8]))
    assert (sent["bootstrap_host"], sent["bootstrap_port"], sent["bootstrap_room"]) == (
        ["h", "h"],
        [1, 1],
        [7, 8],
    )


def test_number_of_sequences_is_bounded() -> None:
    raw = json.dumps({"messages": [], "n": MAX_SEQUENCES + 1}).encode()
    with pytest.raises(BodyError, match=str(MAX_SEQUENCES + 1)):
        read_body("/v1/chat/completions", raw)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b"[]", b'"a"', b"null", b'{"a":NaN}', b"{}x", b'{"a":"\xff"}', b"[" * 100_000]
)
def test_what_is_not_a_json_object_is_refused(raw: bytes) -> None:
    with pytest.raises(BodyError):
        read_body("/generate", raw)


def test_prompt_logprobs_are_joined_only_for_whole_answers_of_generate() -> None:
    def wants(path: str, document: dict[str, object]) -> bool:
        return read_body(path, json.dumps(document).encode()).wants_prompt_logprobs

    assert wants("/generate", {"text": "a", "return_logprob": True})
    assert not wants("/generate", {"text": "a", "return_logprob": True, "stream": True})
    assert not wants("/generate", {"text": "a"})
    assert not wants("/v1/chat/completions", {"messages": [], "logprobs": True, "return_logprob": True})
