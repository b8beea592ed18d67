"""The `openai` Python client, unchanged, against the reference engine."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Iterator

import openai
import pytest

pytestmark = pytest.mark.slow

MESSAGES = [{"role": "user", "content": "say something"}]


@pytest.fixture(scope="module")
def client(tiny_engine) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{tiny_engine.url}/v1", api_key="unused", max_retries=0) as client:
        yield client


def chat(client: openai.OpenAI, **options):
    options = {"temperature": 0, "max_tokens": 16, "extra_body": {"ignore_eos": True}} | options
    return client.chat.completions.create(model="tiny", messages=MESSAGES, **options)


def test_models_are_listed_and_found(client):
    (model,) = client.models.list().data
    assert model.id == "tiny"
    assert client.models.retrieve("tiny").id == "tiny"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    answer = chat(client)
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage.completion_tokens == 16
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + 16


def test_a_streamed_chat_is_the_same_text(client):
    whole = chat(client).choices[0].message.content
    chunks = list(chat(client, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == whole
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "length"
    assert chunks[-1].usage.completion_tokens == 16


def test_the_clients_own_stream_accumulator_understands_the_chunks(client):
    whole = chat(client, max_tokens=40).choices[0].message.content
    with client.chat.completions.stream(
        model="tiny", messages=MESSAGES, temperature=0, stop=whole[10:13], extra_body={"ignore_eos": True}
    ) as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content == whole[: whole.index(whole[10:13])]


def test_several_choices_with_logprobs(client):
    answer = chat(client, n=2, logprobs=True, top_logprobs=3, temperature=1.0, seed=5)
    assert [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert len(choice.logprobs.content) == 16
        assert {len(entry.top_logprobs) for entry in choice.logprobs.content} == {3}


def test_completions_of_several_prompts(client):
    answer = client.completions.create(
        model="tiny",
        prompt=["one", "two"],
        max_tokens=5,
        temperature=0,
        logprobs=2,
        extra_body={"ignore_eos": True},
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert len(answer.choices[0].logprobs.tokens) == 5


def test_a_streamed_completion(client):
    options = {"model": "tiny", "prompt": "one", "max_tokens": 12, "temperature": 0}
    options["extra_body"] = {"ignore_eos": True}
    whole = client.completions.create(**options).choices[0].text
    chunks = list(client.completions.create(**options, stream=True))
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole


def test_stop_ends_the_text_before_the_match(client):
    whole = chat(client, max_tokens=40).choices[0].message.content
    stop = whole[10:13]
    choice = chat(client, max_tokens=40, stop=stop).choices[0]
    assert (choice.message.content, choice.finish_reason) == (whole[: whole.index(stop)], "stop")


@pytest.mark.parametrize(
    ("options", "param"),
    [({"temperature": -1}, "temperature"), ({"max_tokens": 0}, "max_tokens"), ({"n": 1000}, "n")],
)
def test_wrong_values_are_bad_request_errors_with_the_field(client, options, param):
    with pytest.raises(openai.BadRequestError) as caught:
        chat(client, **options)
    assert caught.value.param == param
    assert param in caught.value.message


def test_a_prompt_beyond_the_context_is_a_bad_request_error(client):
    with pytest.raises(openai.BadRequestError, match="20000"):
        client.completions.create(model="tiny", prompt=[1] * 20_000)


def test_fifty_chats_at_once(client):
    alone = chat(client).choices[0].message.content
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        answers = list(pool.map(lambda _: chat(client), range(50)))
    assert {answer.choices[0].message.content for answer in answers} == {alone}
