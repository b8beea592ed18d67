"""Health, facts, loads, metrics."""

from __future__ import annotations

import httpx
import pytest


def test_health_follows_the_heartbeat(own_server):
    assert own_server.client.get("/health").status_code == 200
    own_server.engine.heartbeat_s = 31.0
    reply = own_server.client.get("/health")
    assert reply.status_code == 503
    assert "has not gone round for 31 s" in reply.json()["error"]["message"]


def test_health_answers_while_nothing_else_does(own_server):
    own_server.engine.hang = True
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(own_server.url + "/health_generate", timeout=0.1)
    assert own_server.client.get("/health").status_code == 200


def test_health_generate_makes_one_token(own_server):
    assert own_server.client.get("/health_generate").status_code == 200
    assert [request.sampling.max_new_tokens for request in own_server.engine.submitted] == [1]


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info"])
def test_server_facts_are_those_that_routers_read(client, path):
    facts = client.get(path).json()
    wanted = {
        "served_model_name": "echo",
        "tp_size": 1,
        "dp_size": 1,
        "load_balance_method": "round_robin",
        "disaggregation_mode": "null",
        "disaggregation_bootstrap_port": 8998,
        "model_type": "echo",
        "architectures": ["EchoForCausalLM"],
        "status": "ready",
    }
    assert wanted.items() <= facts.items()
    assert facts["stats"]["num_pages"] == 40
    assert "model_path" not in facts, "a router would look a folder that isn't there up on a public hub"


@pytest.mark.parametrize("path", ["/model_info", "/get_model_info"])
def test_model_facts(client, path):
    facts = client.get(path).json()
    assert (facts["served_model_name"], facts["is_generation"]) == ("echo", True)


def test_models_list_and_one_model(client):
    (card,) = client.get("/v1/models").json()["data"]
    assert (card["id"], card["object"], card["max_model_len"]) == ("echo", "model", 100)
    assert client.get("/v1/models/echo").json() == card
    assert client.get("/v1/models/other").status_code == 404


def test_loads_in_both_forms(client):
    (load,) = client.get("/get_load").json()
    assert load == {"dp_rank": 0, "num_reqs": 0, "num_waiting_reqs": 0, "num_tokens": 160}
    loads = client.get("/v1/loads?include=core,disagg").json()["loads"]
    assert (loads[0]["token_usage"], loads[0]["max_total_num_tokens"]) == (0.25, 640)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_flush_cache_takes_both_methods(client, method):
    assert client.request(method, "/flush_cache").status_code == 200


def test_metrics_have_sglangs_names_and_a_model_label(own_server):
    own_server.client.post("/generate", json={"text": "say:abc"})
    lines = own_server.client.get("/metrics").text.splitlines()
    for line in (
        'sglang:num_requests_total{model_name="echo"} 1.0',
        'sglang:num_running_reqs{model_name="echo"} 0.0',
        'sglang:num_free_pages{model_name="echo"} 30.0',
        'sglang:kv_transfer_bytes_total{model_name="echo"} 1234.0',
        'sglang:token_usage{model_name="echo"} 0.25',
        'sglang:retractions{model_name="echo"} 3.0',
        'sglang:time_to_first_token_seconds_count{model_name="echo"} 1.0',
        'sglang:inter_token_latency_seconds_count{model_name="echo"} 3.0',
        'sglang:e2e_request_latency_seconds_count{model_name="echo"} 1.0',
    ):
        assert line in lines


def test_abort_request_ends_a_running_request_with_what_it_has(own_server):
    own_server.engine.step_s = 0.01
    with httpx.stream(
        "POST",
        own_server.url + "/generate",
        json={"text": "a", "stream": True, "rid": "gone", "sampling_params": {"max_new_tokens": 10_000}},
    ) as reply:
        parts = reply.iter_text()
        text = next(parts)
        aborted = own_server.client.post("/abort_request", json={"rid": "gone"})
        assert aborted.json() == {"num_aborted": 1}
        text += "".join(parts)
    assert '"finish_reason":{"type":"abort","message":"aborted by request"}' in text
    assert text.endswith("data: [DONE]\n\n")
    assert len(own_server.engine.aborted) == 1


def test_abort_request_of_an_unknown_id_is_no_error_but_needs_one(client):
    assert client.post("/abort_request", json={"rid": "nobody"}).json() == {"num_aborted": 0}
    assert client.post("/abort_request", json={"abort_all": True}).json() == {"num_aborted": 0}
    assert client.post("/abort_request", json={}).status_code == 400
