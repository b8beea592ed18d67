"""`/v1/chat/completions` on the wire."""

from __future__ import annotations

import json

import pytest

USER = [{"role": "user", "content": "say:hello"}]


def post(client, **body):
    return client.post("/v1/chat/completions", json={"model": "echo", "messages": USER} | body)


def chunks_of(reply):
    lines = reply.text.split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


def test_whole_answer_has_openais_shape(client):
    body = post(client).json()
    assert body.pop("id").startswith("chatcmpl-")
    assert body.pop("created") > 1_700_000_000
    assert body == {
        "object": "chat.completion",
        "model": "echo",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello"},
                "logprobs": None,
                "finish_reason": "stop",
                "matched_stop": 256,
            }
        ],
        "usage": {"prompt_tokens": 15, "completion_tokens": 6, "total_tokens": 21},
    }


def test_stream_is_role_then_text_then_reason_then_done(client):
    reply = post(client, stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    chunks = chunks_of(reply)
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk["id"] for chunk in chunks}) == 1
    choices = [chunk["choices"][0] for chunk in chunks]
    assert choices[0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(choice["delta"].get("content", "") for choice in choices) == "hello"
    assert (choices[-1]["delta"], choices[-1]["finish_reason"]) == ({}, "stop")
    assert {choice["finish_reason"] for choice in choices[:-1]} == {None}
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_chunk_comes_last_and_only_when_asked(client):
    chunks = chunks_of(post(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == {"prompt_tokens": 15, "completion_tokens": 6, "total_tokens": 21}
    assert {json.dumps(chunk["usage"]) for chunk in chunks[:-1]} == {"null"}


def test_several_choices_count_the_prompt_once(client):
    body = post(client, n=3).json()
    assert [(c["index"], c["message"]["content"]) for c in body["choices"]] == [
        (i, "hello") for i in range(3)
    ]
    assert body["usage"] == {"prompt_tokens": 15, "completion_tokens": 18, "total_tokens": 33}


def test_stream_of_several_choices_keeps_them_apart(client):
    texts = {0: "", 1: ""}
    for chunk in chunks_of(post(client, n=2, stream=True)):
        for choice in chunk["choices"]:
            texts[choice["index"]] += choice["delta"].get("content", "")
    assert texts == {0: "hello", 1: "hello"}


def test_choices_have_seeds_of_their_own(client, unified):
    post(client, n=3, seed=40)
    assert [request.sampling.seed for request in unified.engine.submitted[-3:]] == [40, 41, 42]


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_both_names_of_the_length_limit_count(client, name):
    choice = post(client, **{name: 2}).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("he", "length")


def test_without_a_limit_the_answer_may_fill_the_context(client, unified):
    post(client)
    assert unified.engine.submitted[-1].sampling.max_new_tokens == 100 - 15


def test_text_parts_are_joined(client):
    parts = [{"type": "text", "text": "say:"}, {"type": "text", "text": "parts"}]
    body = post(client, messages=[{"role": "user", "content": parts}]).json()
    assert body["choices"][0]["message"]["content"] == "parts"


def test_logprobs_have_tokens_bytes_and_alternatives(client):
    content = post(client, logprobs=True, top_logprobs=2, max_tokens=1).json()["choices"][0]["logprobs"][
        "content"
    ]
    assert [(entry["token"], entry["bytes"]) for entry in content] == [("h", [104])]
    assert [top["token"] for top in content[0]["top_logprobs"]] == ["h", "i"]


def test_logprobs_stream_with_every_token(client):
    chunks = chunks_of(post(client, logprobs=True, stream=True))
    tokens = [
        entry["token"]
        for chunk in chunks
        for choice in chunk["choices"]
        if choice["logprobs"]
        for entry in choice["logprobs"]["content"]
    ]
    assert tokens == [*"hello", ""]


def test_stop_string_ends_the_answer(client):
    choice = post(client, stop=["lo"]).json()["choices"][0]
    assert (choice["message"]["content"], choice["finish_reason"], choice["matched_stop"]) == (
        "hel",
        "stop",
        "lo",
    )


def test_what_a_router_adds_is_ignored(client):
    added = {
        "logprobs": False,
        "no_stop_trim": False,
        "ignore_eos": False,
        "continue_final_message": False,
        "skip_special_tokens": True,
        "separate_reasoning": True,
        "stream_reasoning": True,
        "return_hidden_states": False,
        "bootstrap_host": ["h"],
        "bootstrap_port": [None],
        "bootstrap_room": [5],
        "tools": None,
    }
    assert post(client, **added).json()["choices"][0]["message"]["content"] == "hello"


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"messages": []}, "messages", "`messages` is [], wanted a list of 1 to"),
        ({"messages": "hi"}, "messages", '`messages` is "hi"'),
        ({"messages": ["hi"]}, "messages[0]", '`messages[0]` is "hi", wanted an object'),
        ({"messages": [{"content": "x"}]}, "messages[0].role", "`messages[0].role` is null"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "`messages[0].content` is 3"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "messages[0].content",
            "this model reads text only",
        ),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages", "can't begin with a tool"),
        ({"n": 0}, "n", "`n` is 0, wanted an integer from 1 to 128"),
        ({"n": 129}, "n", "`n` is 129"),
        ({"max_tokens": 0}, "max_tokens", "`max_tokens` is 0, wanted an integer from 1"),
        ({"temperature": -1}, "temperature", "`temperature` is -1, wanted a number from 0"),
        ({"top_logprobs": 2}, "top_logprobs", "wanted `logprobs` to be true with it"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs", "from 0 to 20"),
        ({"tools": [{"type": "function"}]}, "tools", "`tools` is not supported"),
        ({"response_format": {"type": "json_object"}}, "response_format", "not supported"),
        ({"stream_options": 1}, "stream_options", "`stream_options` is 1, wanted an object"),
    ],
)
def test_a_wrong_body_is_refused_by_name(client, body, param, words):
    reply = post(client, **body)
    error = reply.json()["error"]
    assert (reply.status_code, error["param"]) == (400, param)
    assert words in error["message"]
