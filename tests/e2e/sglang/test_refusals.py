"""What our rules refuse before anything starts, released SGLang refuses too.

Each row is one mistake: as settings of a topology, with the code that it gets, and as words of a command
line, with the place in SGLang 0.5.23 that ends the server. A row that SGLang takes calls for a narrower rule.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from pdctl.diagnostics import DiagnosticError, Severity
from pdctl.lifecycle.planning import TopologySource, plan_file

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPOLOGY = Path(__file__).parents[3] / "topologies" / "deepseek_v3_2p2d.yaml"
SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text())
WELL_FORMED = (
    *("--device", "cuda", "--load-format", "dummy", "--tp-size", "16"),
    *("--nnodes", "2", "--node-rank", "0", "--dist-init-addr", "10.0.0.1:20000"),
)


@dataclass(frozen=True)
class Mistake:
    code: str
    sets: tuple[str, ...]
    words: str
    place: str  # function of SGLang that refuses it
    role: str = "prefill"


ALONE = ("defaults.args.moe-a2a-backend=none", "prefill.parallel.ep=1", "decode.parallel.ep=1")
MISTAKES = (
    Mistake("PD201", ("prefill.parallel.attn_dp=3",), "--attn-dp-size 3", "handle_data_parallelism"),
    Mistake("PD284", ("prefill.parallel.dp=2",), "--attn-dp-size 8 --dp-size 2", "handle_data_parallelism"),
    Mistake(
        "PD278",
        ("defaults.args.page-size=64", "prefill.args.chunked-prefill-size=8000"),
        "--page-size 64 --attn-dp-size 8 --chunked-prefill-size 8000",
        "check_server_args",
    ),
    Mistake("PD278", ("defaults.args.page-size=48",), "--page-size 48", "check_server_args"),
    Mistake("PD335", ("defaults.args.page-size=0",), "--page-size 0", "check_server_args"),
    Mistake(
        "PD330",
        ("defaults.args.enable-hierarchical-cache=true",),
        "--enable-hierarchical-cache",
        "handle_cache_compatibility",
        role="decode",
    ),
    Mistake(
        "PD331",
        ("model.context_length=1048576", "defaults.args.context-length=2000000"),
        "--context-length 2000000",
        "_derive_context_length",
    ),
    Mistake(
        "PD332",
        ("defaults.args.speculative-algorithm=EAGEL",),
        "--speculative-algorithm EAGEL",
        "from_string",
    ),
    Mistake(
        "PD333",
        ("defaults.args.speculative-algorithm=EAGLE", "defaults.args.speculative-num-steps=3"),
        "--speculative-algorithm EAGLE --speculative-num-steps 3",
        "_handle_eagle_family",
    ),
    Mistake("PD274", ("prefill.args.moe-dense-tp-size=3",), "--moe-dense-tp-size 3", "check_server_args"),
    Mistake("PD285", ("model.served_name=a:b",), "--served-model-name a:b", "check_server_args"),
    Mistake("PD275", (*ALONE, "prefill.args.enable-eplb=true"), "--enable-eplb", "handle_eplb_and_dispatch"),
    Mistake(
        "PD276",
        (*ALONE, "prefill.parallel.attn_dp=1", "prefill.args.enable-two-batch-overlap=true"),
        "--enable-two-batch-overlap",
        "check_two_batch_overlap",
    ),
    Mistake(
        "PD287",
        ("transfer.backend=fake",),
        "--disaggregation-transfer-backend fake",
        "handle_pd_disaggregation",
    ),
    Mistake(
        "PD342",
        ("prefill.args.tokenizer-worker-num=0",),
        "--tokenizer-worker-num 0",
        "check_server_args",
    ),
    Mistake(
        "PD344",
        ("prefill.args.enable-priority-scheduling=true", "prefill.args.schedule-policy=lpm"),
        "--enable-priority-scheduling --schedule-policy lpm",
        "check_server_args",
    ),
    Mistake("PD344", ("prefill.args.enable-lora=true",), "--enable-lora", "check_lora_server_args"),
    Mistake(
        "PD281",
        ("decode.parallel.pp=2", "decode.parallel.tp=8", "defaults.args.speculative-algorithm=EAGLE"),
        "--speculative-algorithm EAGLE --pp-size 2",
        "check_pipeline_parallel_compat",
        role="decode",
    ),
)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """A command line that SGLang takes, of a model's shape alone."""
    folder = tmp_path_factory.mktemp("model")
    (folder / "config.json").write_text(json.dumps(SHAPES["mla"]))
    return ("--model-path", str(folder), *WELL_FORMED)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.code)
def test_sglang_refuses_what_we_refuse(mistake: Mistake, command: tuple[str, ...], real_parser):
    with pytest.raises(DiagnosticError) as caught:
        plan_file(TopologySource(path=str(TOPOLOGY), sets=mistake.sets))
    errors = {each.code for each in caught.value.diagnostics if each.severity is Severity.ERROR}
    assert mistake.code in errors

    words = (*command, "--disaggregation-mode", mistake.role, *mistake.words.split())
    parsed = real_parser("0.5.23").ask(words, env=None, resolve=True)
    assert parsed.error is not None
    assert f"{mistake.place})" in parsed.error


def test_sglang_takes_the_command_line_that_the_mistakes_are_made_in(command: tuple[str, ...], real_parser):
    parsed = real_parser("0.5.23").ask((*command, "--disaggregation-mode", "prefill"), env=None, resolve=True)
    assert parsed.error is None
