"""`/v1/completions` on the wire."""

from __future__ import annotations

import json

import pytest


def post(client, **body):
    return client.post("/v1/completions", json={"model": "echo"} | body)


def chunks_of(reply):
    lines = reply.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def texts_of(chunks):
    texts = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return texts


def test_whole_answer_has_openais_shape(client):
    body = post(client, prompt="say:hi").json()
    assert body.pop("id").startswith("cmpl-")
    assert body.pop("created") > 1_700_000_000
    assert body == {
        "object": "text_completion",
        "model": "echo",
        "choices": [
            {"index": 0, "text": "hi", "logprobs": None, "finish_reason": "stop", "matched_stop": 256}
        ],
        "usage": {"prompt_tokens": 6, "completion_tokens": 3, "total_tokens": 9},
    }


@pytest.mark.parametrize(
    ("prompt", "texts"),
    [
        ("say:a", ["a"]),
        (["say:a", "say:b"], ["a", "b"]),
        (list(b"say:a"), ["a"]),
        ([list(b"say:a"), list(b"say:b")], ["a", "b"]),
    ],
)
def test_a_prompt_is_text_or_token_ids_one_or_many(client, prompt, texts):
    body = post(client, prompt=prompt).json()
    assert [choice["text"] for choice in body["choices"]] == texts
    assert body["usage"]["prompt_tokens"] == 5 * len(texts)


def test_choices_are_numbered_prompt_by_prompt(client):
    body = post(client, prompt=["say:a", "say:b"], n=2).json()
    assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, "a"), (1, "a"), (2, "b"), (3, "b")]
    assert body["usage"] == {"prompt_tokens": 10, "completion_tokens": 8, "total_tokens": 18}


def test_sixteen_tokens_unless_told_otherwise(client):
    choice = post(client, prompt="x").json()["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("abcdefghijklmnop", "length")


def test_stream_joins_to_the_whole_text_and_ends_with_a_reason(client):
    chunks = chunks_of(post(client, prompt="say:hello", stream=True))
    assert texts_of(chunks) == {0: "hello"}
    reasons = [chunk["choices"][0]["finish_reason"] for chunk in chunks]
    assert (reasons[-1], set(reasons[:-1])) == ("stop", {None})


def test_echo_puts_the_prompt_in_front(client):
    assert post(client, prompt="say:hi", echo=True).json()["choices"][0]["text"] == "say:hihi"
    assert post(client, prompt=list(b"say:hi"), echo=True).json()["choices"][0]["text"] == "say:hihi"
    chunks = chunks_of(post(client, prompt=["say:a", "say:b"], n=2, echo=True, stream=True))
    assert texts_of(chunks) == {0: "say:aa", 1: "say:aa", 2: "say:bb", 3: "say:bb"}


def test_logprobs_have_offsets_into_the_text(client):
    logprobs = post(client, prompt="say:hi!", logprobs=2).json()["choices"][0]["logprobs"]
    assert logprobs["tokens"] == ["h", "i", "!", ""]
    assert logprobs["text_offset"] == [0, 1, 2, 3]
    assert set(logprobs["top_logprobs"][0]) == {"h", "i"}
    assert logprobs["token_logprobs"][0] == pytest.approx(-0.693, abs=1e-3)


def test_offsets_go_on_through_a_stream(client):
    chunks = chunks_of(post(client, prompt="say:hi!", logprobs=0, stream=True))
    offsets = [offset for chunk in chunks for offset in chunk["choices"][0]["logprobs"]["text_offset"]]
    assert offsets == [0, 1, 2, 3]


def test_usage_of_a_stream_comes_in_a_chunk_of_its_own(client):
    chunks = chunks_of(post(client, prompt="say:hi", stream=True, stream_options={"include_usage": True}))
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["total_tokens"]) == ([], 9)


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "prompt", "`prompt` is null, wanted a string, a list of strings"),
        ({"prompt": ""}, "prompt", "`prompt` is empty"),
        ({"prompt": ["a", 1]}, "prompt", "wanted a string"),
        ({"prompt": [[1], []]}, "prompt", "wanted a string"),
        ({"prompt": [300]}, "prompt", "token id 300, wanted ids from 0 to 256"),
        ({"prompt": ["a"] * 100, "n": 11}, None, "asks for 1100 sequences, wanted at most 1024"),
        ({"prompt": "a", "logprobs": 21}, "logprobs", "from 0 to 20"),
        ({"prompt": "a", "echo": True, "logprobs": 1}, "echo", "generated tokens only"),
        ({"prompt": "a", "best_of": 3}, "best_of", "not supported"),
        ({"prompt": "a", "suffix": "z"}, "suffix", "not supported"),
    ],
)
def test_a_wrong_body_is_refused_by_name(client, body, param, words):
    reply = post(client, **body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert words in error["message"]
