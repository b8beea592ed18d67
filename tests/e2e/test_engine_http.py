"""The reference engine as a process: start, answers, faults, end."""

from __future__ import annotations

import concurrent.futures
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]

ENDLESS = {"max_new_tokens": 16_000, "temperature": 0, "ignore_eos": True}


def stats_of(client):
    return client.get("/server_info").json()["stats"]


def is_idle(client):
    stats = stats_of(client)
    return stats["num_running"] == stats["num_waiting"] == 0 and stats["num_free_pages"] == stats["num_pages"]


def greedy(client, text, num_tokens=24, **extra):
    params = {"max_new_tokens": num_tokens, "temperature": 0, "ignore_eos": True}
    reply = client.post("/generate", json={"text": text, "sampling_params": params, **extra})
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_text_and_its_token_ids_give_the_same_answer(http):
    by_text = greedy(http, "hello there")
    tokens = http.post(
        "/generate",
        json={
            "input_ids": [by_text["output_ids"][0]],
            "sampling_params": {"max_new_tokens": 4, "temperature": 0, "ignore_eos": True},
        },
    ).json()
    assert len(by_text["output_ids"]) == 24
    assert len(set(by_text["output_ids"])) > 3, "a model that repeats itself would hide mistakes"
    assert len(tokens["output_ids"]) == 4


def test_fifty_requests_at_once_answer_as_each_does_alone(http):
    prompts = [f"prompt number {index} " + "x" * (7 * index) for index in range(50)]
    with concurrent.futures.ThreadPoolExecutor(50) as pool:
        together = list(pool.map(lambda prompt: greedy(http, prompt)["output_ids"], prompts))
    alone = [greedy(http, prompt)["output_ids"] for prompt in prompts]
    assert together == alone
    assert is_idle(http)


def test_a_batch_answers_as_its_prompts_do_alone(http):
    prompts = ["one", "two and more", "three"]
    params = {"max_new_tokens": 12, "temperature": 0, "ignore_eos": True}
    batch = http.post("/generate", json={"text": prompts, "sampling_params": params}).json()
    assert [a["output_ids"] for a in batch] == [greedy(http, p, 12)["output_ids"] for p in prompts]


def test_the_stream_ends_in_the_same_text_as_the_whole_answer(http):
    whole = greedy(http, "stream me", 40)["text"]
    params = {"max_new_tokens": 40, "temperature": 0, "ignore_eos": True}
    reply = http.post("/generate", json={"text": "stream me", "sampling_params": params, "stream": True})
    *events, done, rest = reply.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    texts = [json.loads(event.removeprefix("data: "))["text"] for event in events]
    assert texts[-1] == whole
    assert len(texts) > 5, "a stream that comes all at once is none"


def test_a_stop_string_over_several_tokens_cuts_the_answer(http):
    whole = greedy(http, "where to stop", 60)["text"]
    stop = whole[20:26]
    params = {"max_new_tokens": 60, "temperature": 0, "ignore_eos": True, "stop": [stop, "never seen"]}
    body = http.post("/generate", json={"text": "where to stop", "sampling_params": params}).json()
    assert body["text"] == whole[: whole.index(stop)]
    assert body["meta_info"]["finish_reason"] == {"type": "stop", "matched": stop}
    wait_until(lambda: is_idle(http))


def test_a_stop_string_of_ten_thousand_characters_is_fine(http):
    params = {"max_new_tokens": 8, "temperature": 0, "ignore_eos": True, "stop": ["x" * 10_000]}
    reply = http.post("/generate", json={"text": "a", "sampling_params": params})
    assert (reply.status_code, len(reply.json()["output_ids"])) == (200, 8)


def test_the_same_seed_gives_the_same_answer_and_another_seed_another(http):
    def drawn(seed):
        params = {"max_new_tokens": 24, "temperature": 1.0, "sampling_seed": seed, "ignore_eos": True}
        return http.post("/generate", json={"text": "dice", "sampling_params": params}).json()["output_ids"]

    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_logprobs_belong_to_the_tokens(http):
    body = greedy(http, "how sure", 5, return_logprob=True, top_logprobs_num=3)
    chosen = body["meta_info"]["output_token_logprobs"]
    tops = body["meta_info"]["output_top_logprobs"]
    assert [token for _, token, _ in chosen] == body["output_ids"]
    assert [top[0][1] for top in tops] == body["output_ids"], "greedy takes the most likely one"
    assert all(top[0][0] == entry[0] <= 0 for top, entry in zip(tops, chosen, strict=True))


def test_a_prompt_longer_than_the_context_is_a_400_that_names_both_lengths(http):
    for body in ({"input_ids": [1] * 20_000}, {"text": ["short", "x" * 20_000]}):
        reply = http.post("/generate", json=body | {"stream": True})
        assert reply.status_code == 400
        assert "20000" in reply.json()["error"]["message"]
        assert "16384" in reply.json()["error"]["message"]
    wait_until(lambda: is_idle(http))


def test_a_client_that_leaves_its_stream_frees_its_pages(http, tiny_engine):
    num_aborted = stats_of(http)["num_aborted"]
    body = {"text": "a", "sampling_params": ENDLESS, "stream": True}
    with httpx.stream("POST", f"{tiny_engine.url}/generate", json=body) as reply:
        next(reply.iter_bytes())
    wait_until(lambda: is_idle(http) and stats_of(http)["num_aborted"] == num_aborted + 1)


def test_a_client_that_leaves_while_it_waits_frees_its_pages(http, tiny_engine):
    num_aborted = stats_of(http)["num_aborted"]
    body = json.dumps({"text": "a", "sampling_params": ENDLESS})
    head = f"POST /generate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    with socket.create_connection(("127.0.0.1", tiny_engine.port)) as client:
        client.sendall((head + body).encode())
        wait_until(lambda: stats_of(http)["num_running"] == 1, "it waits")
    wait_until(lambda: is_idle(http) and stats_of(http)["num_aborted"] == num_aborted + 1)


def test_health_answers_while_long_prompts_are_computed(http, tiny_engine):
    def long_prompt(index):
        greedy(http, f"{index}" + "long " * 700, 1)

    threads = [threading.Thread(target=long_prompt, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    num_answers_meanwhile = 0
    with httpx.Client(base_url=tiny_engine.url, timeout=60) as client:
        while any(thread.is_alive() for thread in threads):
            assert client.get("/health").status_code == 200
            num_answers_meanwhile += all(thread.is_alive() for thread in threads)
    assert num_answers_meanwhile > 0


def test_metrics_and_facts_count_the_requests(http):
    before = stats_of(http)["num_requests"]
    greedy(http, "count me", 3)
    assert stats_of(http)["num_requests"] == before + 1
    assert f'sglang:num_requests_total{{model_name="tiny"}} {before + 1}.0' in http.get("/metrics").text
    assert http.get("/health_generate").status_code == 200


def test_facts_name_a_folder_from_which_a_router_can_load_the_tokenizer(http, tiny_llama):
    facts = http.get("/server_info").json()
    assert facts["tokenizer_path"] == facts["model_path"] == str(tiny_llama)
    assert (facts["model_type"], facts["architectures"]) == ("llama", ["LlamaForCausalLM"])


def test_a_taken_port_is_one_line_and_exit_1_before_anything_slow(tiny_llama):
    environ = os.environ | {"PYTHONPROFILEIMPORTTIME": "1"}  # a line for each module that is loaded
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        argv = [sys.executable, "-m", "runtime.engine", "--model-path", str(tiny_llama), "--port", str(port)]
        ended = subprocess.run(argv, cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    loaded, said = [], []
    for line in ended.stderr.splitlines():
        (loaded if line.startswith("import time:") else said).append(line)
    assert (ended.returncode, said) == (1, [f"error: port 127.0.0.1:{port} is taken"])
    assert "argparse" in "".join(loaded)
    assert [line for line in loaded if line.rpartition("|")[2].strip() in ("torch", "transformers")] == []


def test_a_taken_bootstrap_port_is_one_line_and_exit_1(run_engine_to_end, tiny_llama):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        taken = str(stranger.getsockname()[1])
        model = ("--model-path", str(tiny_llama), "--port", "0")
        ended = run_engine_to_end(
            *model, "--disaggregation-mode", "prefill", "--disaggregation-bootstrap-port", taken
        )
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    assert taken in line


def test_a_host_that_is_not_here_is_one_line_and_exit_1(run_engine_to_end, tiny_llama):
    ended = run_engine_to_end("--model-path", str(tiny_llama), "--host", "192.0.2.1", "--port", "0")
    assert ended.returncode == 1
    assert ended.stderr == "error: can't listen on 192.0.2.1:0: Cannot assign requested address\n"


@pytest.mark.parametrize("fault", ["missing", "truncated", "unknown-architecture"])
def test_a_model_that_cannot_be_served_is_one_line_and_exit_1(run_engine_to_end, tiny_llama, tmp_path, fault):
    model = tmp_path / "model"
    if fault != "missing":
        model.mkdir()
        for path in tiny_llama.iterdir():
            (model / path.name).write_bytes(path.read_bytes())
    if fault == "truncated":
        weights = model / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-1000])
    if fault == "unknown-architecture":
        config = json.loads((model / "config.json").read_text())
        config |= {"architectures": ["PonyForCausalLM"], "model_type": "pony"}
        (model / "config.json").write_text(json.dumps(config))
    ended = run_engine_to_end("--model-path", str(model), "--port", "0")
    assert ended.returncode == 1
    (line,) = ended.stderr.splitlines()
    assert line.startswith("error: ")
    named = {"missing": str(model), "truncated": "model.safetensors", "unknown-architecture": "pony"}[fault]
    assert named.lower() in line.lower()


def test_sigterm_lets_a_short_request_finish_and_exits_0(start_engine, tiny_llama):
    engine = start_engine("--model-path", str(tiny_llama), "--shutdown-grace", "100")
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        body = {"text": "a", "sampling_params": ENDLESS | {"max_new_tokens": 300}, "stream": True}
        with client.stream("POST", "/generate", json=body) as reply:
            parts = reply.iter_text()
            text = next(parts)
            engine.signal(signal.SIGTERM)
            text += "".join(parts)
    last = json.loads(text.split("\n\n")[-3].removeprefix("data: "))
    assert last["meta_info"]["finish_reason"] == {"type": "length", "length": 300}
    assert engine.wait(60) == 0
    assert engine.log.startswith(f"ready: unified 127.0.0.1:{engine.port} ")
    assert "Traceback" not in engine.log


def test_sigterm_aborts_a_long_request_after_the_grace_with_an_error_event(start_engine, tiny_llama):
    engine = start_engine("--model-path", str(tiny_llama), "--shutdown-grace", "1")
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        body = {"text": "a", "sampling_params": ENDLESS, "stream": True}
        with client.stream("POST", "/generate", json=body) as reply:
            parts = reply.iter_text()
            next(parts)
            told_s = time.monotonic()
            engine.signal(signal.SIGTERM)
            text = "".join(parts)
    error = json.loads(text.split("\n\n")[-3].removeprefix("data: "))["error"]
    assert (error["code"], error["message"]) == (503, "the engine is shutting down")
    assert engine.wait(60) == 0
    assert time.monotonic() - told_s >= 1
    assert "Traceback" not in engine.log


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_exits_at_once(start_engine, tiny_llama, second):
    engine = start_engine("--model-path", str(tiny_llama), "--shutdown-grace", "100")
    with httpx.Client(base_url=engine.url, timeout=30) as client:
        body = {"text": "a", "sampling_params": ENDLESS, "stream": True}
        with client.stream("POST", "/generate", json=body) as reply:
            parts = reply.iter_text()  # held: an iterator that is dropped closes the connection
            next(parts)
            engine.signal(signal.SIGTERM)
            wait_until(lambda: "SIGTERM: finishing running requests for at most 100 s" in engine.log)
            engine.signal(second)
            assert engine.wait(60) == 128 + second


@pytest.mark.parametrize("delay_s", [0.01, 0.05, 0.1, 0.15, 0.2])
def test_sigterm_while_the_model_loads_ends_at_once(tiny_llama, spawn_engine, delay_s):
    process = spawn_engine("--model-path", str(tiny_llama))
    time.sleep(delay_s)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) in (0, -signal.SIGTERM)  # the latter: no handler was there yet
    assert "Traceback" not in process.log_path.read_text()
