"""The request boundary: ids, failures in every state of an answer, clients that leave."""

from __future__ import annotations

import json
import socket
import time

import httpx
import pytest

from runtime.engine.server.http import MAX_BODY_BYTES

GENERATING = ["/generate", "/v1/completions", "/v1/chat/completions"]


def body_for(path, text):
    if path == "/generate":
        return {"text": text}
    if path == "/v1/completions":
        return {"prompt": text}
    return {"messages": [{"role": "user", "content": text}]}


def wait_until(condition, deadline_s=5.0):
    ends = time.monotonic() + deadline_s
    while not condition():
        assert time.monotonic() < ends, "the condition never came true"
        time.sleep(0.005)


@pytest.mark.parametrize("path", GENERATING)
def test_the_clients_request_id_names_the_answer_and_comes_back(client, path):
    reply = client.post(path, json=body_for(path, "say:x"), headers={"x-request-id": "my-id"})
    assert reply.headers["x-request-id"] == "my-id"
    body = reply.json()
    assert "my-id" in (body.get("id"), body.get("meta_info", {}).get("id"))


def test_a_request_without_id_gets_one(client):
    reply = client.post("/v1/completions", json={"prompt": "say:x"})
    assert reply.headers["x-request-id"] == reply.json()["id"]


def test_the_same_id_twice_at_once_is_two_requests(own_server):
    own_server.engine.hang = True
    with httpx.Client(base_url=own_server.url) as client:
        for _ in range(2):
            with pytest.raises(httpx.ReadTimeout):
                client.post("/generate", json={"text": "a", "rid": "same"}, timeout=0.1)
    rids = [request.rid for request in own_server.engine.submitted]
    assert len(set(rids)) == 2


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("body", [b"{", b"", b"[1]", b'"x"', b"\xff\xfe", b"null"])
def test_malformed_json_is_a_400_in_openais_form(client, path, body):
    reply = client.post(path, content=body)
    assert reply.status_code == 400
    assert set(reply.json()["error"]) == {"message", "type", "param", "code"}


def test_a_body_beyond_the_bound_is_a_413(client):
    reply = client.post("/generate", content=b" " * (MAX_BODY_BYTES + 1))
    assert (reply.status_code, reply.json()["error"]["type"]) == (413, "request_too_large_error")


def test_unknown_paths_and_methods_are_errors_in_the_same_form(client):
    assert client.get("/nowhere").status_code == 404
    assert client.get("/nowhere").json()["error"]["message"] == "GET /nowhere: not found"
    assert client.get("/generate").status_code == 405
    assert client.get("/generate").json()["error"]["message"] == "GET /generate: method not allowed"


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("status", [400, 500, 503])
def test_an_abort_before_the_first_token_is_the_http_status(client, path, stream, status):
    reply = client.post(path, json=body_for(path, f"fail:{status}:") | {"stream": stream})
    assert reply.status_code == status
    assert reply.json()["error"]["message"] == "the other half died"


@pytest.mark.parametrize("path", GENERATING)
def test_an_abort_after_the_first_token_is_an_event(client, path):
    reply = client.post(path, json=body_for(path, "fail-late:503:") | {"stream": True})
    assert reply.status_code == 200
    *_, last, done, rest = reply.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == 503


def test_one_failed_sequence_fails_the_batch_and_frees_the_others(own_server):
    own_server.engine.step_s = 0.01
    reply = own_server.client.post("/generate", json={"text": ["say:" + "x" * 90, "fail-late:500:"]})
    assert reply.status_code == 500
    assert own_server.engine.submitted[0].rid in own_server.engine.aborted


@pytest.mark.parametrize("path", GENERATING)
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_before_the_first_token_aborts_its_request(own_server, path, stream):
    own_server.engine.hang = True
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(own_server.url + path, json=body_for(path, "a") | {"stream": stream}, timeout=0.2)
    wait_until(lambda: own_server.engine.aborted)
    assert own_server.engine.aborted == [own_server.engine.submitted[0].rid]


def test_a_client_that_leaves_in_the_middle_of_a_stream_aborts_its_request(own_server):
    own_server.engine.step_s = 0.02
    with httpx.stream(
        "POST", own_server.url + "/generate", json={"text": "a", "stream": True}, timeout=5
    ) as reply:
        next(reply.iter_bytes())
    wait_until(lambda: own_server.engine.aborted)
    wait_until(lambda: own_server.engine.stats().num_running == 0)


def test_a_client_that_leaves_before_its_body_is_complete_is_forgotten(own_server):
    host, port = own_server.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"POST /generate HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{")
    assert own_server.client.post("/generate", json={"text": "say:ok"}).json()["text"] == "ok"
    assert len(own_server.engine.submitted) == 1


def test_characters_of_several_bytes_are_never_torn(client):
    text = "zwölf Boxkämpfer 🥊 jagen"
    reply = client.post("/v1/completions", json={"prompt": f"say:{text}", "max_tokens": 90, "stream": True})
    chunks = [json.loads(line[6:]) for line in reply.text.split("\n\n")[:-2]]
    pieces = [chunk["choices"][0]["text"] for chunk in chunks]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


def test_a_character_that_stays_incomplete_becomes_a_replacement_at_the_end(client):
    body = client.post("/v1/completions", json={"prompt": "say:aä", "max_tokens": 2}).json()
    assert body["choices"][0]["text"] == "a\ufffd"


def test_requests_while_the_model_loads_are_told_to_come_back(start_server):
    with start_server(is_ready=False) as server:
        for path in ("/health", "/server_info", "/v1/models"):
            assert server.client.get(path).status_code == 503
        reply = server.client.post("/generate", json={"text": "a"})
        assert (reply.status_code, reply.json()["error"]["message"]) == (503, "the model is still loading")
        assert server.client.get("/metrics").status_code == 200


@pytest.mark.parametrize("mode", ["prefill", "decode"])
@pytest.mark.parametrize("path", GENERATING)
def test_half_a_request_without_its_room_is_sent_to_the_router(start_server, mode, path):
    with start_server(mode=mode) as server:
        refused = server.client.post(path, json=body_for(path, "say:a"))
        assert refused.status_code == 400
        assert f"this is a {mode} instance, send the request through the router" in refused.text
        rooms = {"bootstrap_host": "10.1.1.1", "bootstrap_port": None, "bootstrap_room": 77}
        assert server.client.post(path, json=body_for(path, "say:a") | rooms).status_code == 200
        rendezvous = server.engine.submitted[0].rendezvous
        assert (rendezvous.bootstrap_host, rendezvous.bootstrap_port, rendezvous.room) == (
            "10.1.1.1",
            8998,
            77,
        )


@pytest.mark.parametrize(("path", "status"), [("/generate", 200), ("/v1/completions", 400)])
def test_the_header_of_a_rank_counts_on_openais_routes_alone(client, path, status):
    body = {"text": "a", "prompt": "a", "model": "m"}
    answer = client.post(path, json=body, headers={"X-Data-Parallel-Rank": "1"})
    assert answer.status_code == status, answer.text
