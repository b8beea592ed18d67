"""`/generate` in SGLang's form."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest


def events_of(text: str) -> list:
    assert text.endswith("data: [DONE]\n\n")
    return [json.loads(line[6:]) for line in text.split("\n\n") if line and line != "data: [DONE]"]


def test_text_answer_has_sglangs_shape(client):
    reply = client.post(
        "/generate", json={"text": "say:hi", "rid": "r1", "sampling_params": {"max_new_tokens": 9}}
    )
    body = reply.json()
    assert body["text"] == "hi"
    assert body["output_ids"] == [104, 105, 256]
    meta = body["meta_info"]
    assert meta.pop("e2e_latency") > 0
    assert meta == {
        "id": "r1",
        "finish_reason": {"type": "stop", "matched": 256},
        "prompt_tokens": 6,
        "completion_tokens": 3,
        "cached_tokens": 0,
    }


def test_token_ids_and_length_limit(client):
    body = client.post(
        "/generate", json={"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 2}}
    ).json()
    assert body["text"] == "ab"
    assert body["meta_info"]["finish_reason"] == {"type": "length", "length": 2}


@pytest.mark.parametrize("field", ["text", "input_ids"])
def test_batches_come_back_in_order_with_their_own_parameters(client, field):
    prompts = ["say:one", "say:three", "say:seven"]
    value = prompts if field == "text" else [list(prompt.encode()) for prompt in prompts]
    params = [{"max_new_tokens": 2}, {"max_new_tokens": 3}, {}]
    body = client.post("/generate", json={field: value, "sampling_params": params, "rid": "b"}).json()
    assert [answer["text"] for answer in body] == ["on", "thr", "seven"]
    assert [answer["meta_info"]["id"] for answer in body] == ["b_0", "b_1", "b_2"]


def test_batch_of_one_is_a_list(client):
    assert [a["text"] for a in client.post("/generate", json={"text": ["say:x"]}).json()] == ["x"]


def test_stream_repeats_the_text_so_far(client):
    events = events_of(client.post("/generate", json={"text": "say:abc", "stream": True}).text)
    texts = [event["text"] for event in events]
    assert texts[-1] == "abc"
    assert all(later.startswith(earlier) for earlier, later in pairwise(texts))
    assert [event["meta_info"]["finish_reason"] for event in events[:-1]] == [None] * (len(events) - 1)
    assert events[-1]["output_ids"] == [97, 98, 99, 256]


def test_stream_of_a_batch_tells_which_sequence(client):
    events = events_of(client.post("/generate", json={"text": ["say:aa", "say:bb"], "stream": True}).text)
    last = {event["index"]: event["text"] for event in events}
    assert last == {0: "aa", 1: "bb"}


def test_logprobs_are_triples(client):
    body = client.post(
        "/generate",
        json={
            "text": "say:ab",
            "return_logprob": True,
            "top_logprobs_num": 2,
            "return_text_in_logprobs": True,
            "sampling_params": {"max_new_tokens": 1},
        },
    ).json()
    meta = body["meta_info"]
    assert [(token, text) for _, token, text in meta["output_token_logprobs"]] == [(97, "a")]
    assert [[token for _, token, _ in top] for top in meta["output_top_logprobs"]] == [[97, 98]]
    assert meta["input_token_logprobs"] == []


def test_stop_string_cuts_the_text_and_frees_the_engine(client, unified):
    body = client.post(
        "/generate", json={"text": "say:one STOP two", "sampling_params": {"stop": ["STOP", "zzz"]}}
    ).json()
    assert body["text"] == "one "
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": "STOP"}
    assert body["meta_info"]["completion_tokens"] == len("one STOP")
    assert unified.engine.submitted[-1].rid in unified.engine.aborted


def test_no_stop_trim_keeps_the_stop_string(client):
    params = {"stop": "STOP", "no_stop_trim": True}
    assert client.post("/generate", json={"text": "say:1 STOP 2", "sampling_params": params}).json()[
        "text"
    ] == ("1 STOP")


def test_stop_token_is_no_part_of_the_text(client):
    params = {"stop_token_ids": [ord("!")]}
    body = client.post("/generate", json={"text": "say:hey!you", "sampling_params": params}).json()
    assert (body["text"], body["output_ids"][-1]) == ("hey", ord("!"))


def test_stream_never_shows_the_beginning_of_a_stop_string(client):
    events = events_of(
        client.post(
            "/generate",
            json={"text": "say:a ST b STOP c", "stream": True, "sampling_params": {"stop": "STOP"}},
        ).text
    )
    assert events[-1]["text"] == "a ST b "
    assert not any(event["text"].endswith(("S", "STO", "b ST")) for event in events)


def test_unknown_and_null_keys_are_ignored(client):
    body = {
        "text": "say:ok",
        "model": None,
        "sampling_params": {"stop": None, "top_p": None, "n": None, "made_up": 1, "repetition_penalty": 1.0},
        "return_text_in_logprobs": False,
        "stream": False,
        "log_metrics": True,
        "return_hidden_states": False,
        "background": False,
        "return_bytes": False,
        "bootstrap_host": "ignored",
        "bootstrap_port": None,
        "bootstrap_room": 3,
    }
    assert client.post("/generate", json=body).json()["text"] == "ok"


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({}, "text", "neither of `text` and `input_ids`"),
        ({"text": "a", "input_ids": [1]}, "input_ids", "both of"),
        ({"text": ""}, "text", "`text` is empty"),
        ({"text": []}, "text", "`text` is [], wanted a string"),
        ({"text": 5}, "text", "`text` is 5, wanted a string"),
        ({"text": [1]}, "text", "`text` is [1], wanted a string"),
        ({"input_ids": []}, "input_ids", "`input_ids` is [], wanted a list of token ids"),
        ({"input_ids": [1, "2"]}, "input_ids", '`input_ids` is [1,"2"], wanted'),
        ({"input_ids": [True]}, "input_ids", "wanted a list of token ids"),
        ({"input_ids": [0, 257]}, "input_ids", "token id 257, wanted ids from 0 to 256"),
        ({"input_ids": [[1], [-1]]}, "input_ids", "token id -1, wanted ids from 0 to 256"),
        ({"text": "a", "stream": "yes"}, "stream", '`stream` is "yes", wanted true or false'),
        ({"text": "a", "rid": 5}, "rid", "`rid` is 5"),
        ({"text": ["a", "b"], "rid": ["x"]}, "rid", "or one for each prompt"),
        ({"text": "a", "sampling_params": []}, "sampling_params", "`sampling_params` is []"),
        ({"text": "a", "sampling_params": 3}, "sampling_params", "wanted an object"),
        ({"text": "a", "lora_path": "x"}, "lora_path", "`lora_path` is not supported"),
        ({"text": "a", "top_logprobs_num": -1}, "top_logprobs_num", "`top_logprobs_num` is -1"),
        ({"text": "a", "return_logprob": 1}, "return_logprob", "`return_logprob` is 1"),
        (
            {"text": "a", "return_logprob": True, "logprob_start_len": 0},
            "logprob_start_len",
            "is 0, wanted -1",
        ),
    ],
)
def test_a_wrong_body_is_refused_by_name(client, body, param, words):
    reply = client.post("/generate", json=body)
    error = reply.json()["error"]
    assert reply.status_code == 400
    assert error["param"] == param
    assert words in error["message"]
    assert (error["type"], error["code"]) == ("invalid_request_error", 400)


def test_a_model_without_tokenizer_takes_token_ids_only(start_server):
    with start_server(has_tokenizer=False) as server:
        refused = server.client.post("/generate", json={"text": "a"})
        assert refused.status_code == 400
        assert "no tokenizer" in refused.json()["error"]["message"]
        body = server.client.post(
            "/generate", json={"input_ids": [5], "sampling_params": {"max_new_tokens": 3}}
        ).json()
        assert (body["text"], body["output_ids"]) == ("", [97, 98, 99])
