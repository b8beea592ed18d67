"""What the rules say that SGLang refuses to start with, SGLang 0.5.23 refuses; what they let pass, it takes.

The bad documents go around the rules: their command lines are made all the same, and resolved by SGLang as a
server does it before it loads a model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pdctl.compiler import Programs, compile_plan
from pdctl.engines.sglang import PROGRAM as SGLANG
from pdctl.inventory import declared
from pdctl.models.resolve import with_facts
from pdctl.plan.model import ProcessSpec, RoleKind
from pdctl.routers.mini_lb import PROGRAM as ROUTER
from pdctl.topology.load import load

pytestmark = pytest.mark.slow

BAD = Path(__file__).parents[2] / "golden" / "bad"
SHAPES = json.loads(Path(__file__).with_name("shapes.json").read_text(encoding="utf-8"))
VERSION = "0.5.23"

# The document, the shape of its model, and a part of what SGLang says.
REFUSED = [
    ("PD274-dense-width", "mla", "moe_dense_tp_size"),
    ("PD275-eplb-without-ep", "gqa-moe", "AssertionError"),
    ("PD276-overlap-with-nothing", "gqa-moe", "two batch overlap"),
    ("PD277-a2a-widths", "mla", "pplx"),
    ("PD278-chunk-against-pages", "gqa", "chunked_prefill_size must be divisible"),
    ("PD281-drafting-across-stages", "gqa", "only supported on prefill nodes"),
    ("PD283-cutedsl-in-normal-mode", "mla", "low_latency"),
    ("PD284-dp-with-attn-dp", "gqa", "not supported"),
    ("PD285-colon-in-name", "gqa", "colon"),
    ("PD286-dispatch-without-a2a", "gqa-moe", "physical replica"),
    ("PD287-fake-backend", "gqa", "'fake'"),
    ("PD289-feature-of-one-server", "gqa", "response"),
    ("PD325-allocation-policy", "gqa", "prefill_complete"),
]
# Documents that another rule finds fault with: SGLang resolves them, and fails or lies later.
TAKEN = [
    ("PD273-dispatch-limit-below-graph", "mla"),
    ("PD310-kv-dtypes-differ", "gqa"),
    ("PD312-backend-changes-page-size", "gqa"),
    ("PD321-stages-do-not-pair", "gqa"),
    ("PD322-context-ranks-on-decode", "gqa"),
    ("PD271-experts-do-not-divide", "mla"),
    ("PD313-shared-setting-differs", "gqa"),
    ("PD420-queues-above-threads", "gqa"),
]


@pytest.fixture(scope="module")
def answers(real_parser, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], list[str | None]]:
    """What SGLang says of every process of a bad document: an error, or None."""
    folder = tmp_path_factory.mktemp("shapes")

    def of(name: str, shape: str) -> list[str | None]:
        model = folder / shape
        model.mkdir(exist_ok=True)
        (model / "config.json").write_text(json.dumps(SHAPES[shape]), encoding="utf-8")
        parser = real_parser(VERSION)
        found: list[str | None] = []
        for process in processes(BAD / f"{name}.yaml"):
            argv = ["--model-path", str(model), "--device", "cuda", "--load-format", "dummy", *own(process)]
            found.append(parser.ask(argv, env=process.env, resolve=True).error)
        return found

    return of


@pytest.mark.parametrize(("name", "shape", "says"), REFUSED, ids=[name for name, _, _ in REFUSED])
def test_sglang_refuses_it_too(name: str, shape: str, says: str, answers) -> None:
    errors = [error for error in answers(name, shape) if error is not None]
    assert errors, "SGLang takes it"
    assert says in errors[0]


@pytest.mark.parametrize(("name", "shape"), TAKEN, ids=[name for name, _ in TAKEN])
def test_sglang_takes_it_and_the_rule_is_needed(name: str, shape: str, answers) -> None:
    assert set(answers(name, shape)) == {None}


def processes(path: Path) -> Iterator[ProcessSpec]:
    """The engine processes of a document that the rules refuse."""
    topology, _ = with_facts(load(str(path), environ={}).require())
    plan = compile_plan(topology, declared(topology.cluster), Programs(engine=SGLANG, router=ROUTER))
    return (process for process in plan.processes if process.role is not RoleKind.ROUTER)


def own(process: ProcessSpec) -> list[str]:
    """Words after the module, without the model and the kernels that no GPU here has."""
    words: list[str] = []
    skipping = False
    for word in process.argv[3:]:
        if word.startswith("--"):
            skipping = word in ("--model-path", "--attention-backend")
        if not skipping:
            words.append(word)
    return words
