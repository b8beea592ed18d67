"""Released SGLang computes just the ports that a plan claims beside those of the command line."""

from __future__ import annotations

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import declared
from pdctl.plan.model import ProcessSpec
from pdctl.topology.load import load_text

pytestmark = pytest.mark.slow

TOPOLOGY = """\
schema: pdctl/v1
name: demo
model: {{path: none}}
engine: {{kind: sglang, version: "0.5.23"}}
cluster:
  executor: ssh
  nodes:
    - {{name: n1, address: 127.0.0.1}}
    - {{name: n2, address: 127.0.0.2}}
    - {{name: n3, address: 127.0.0.3}}
transfer: {{backend: mooncake_tcp}}
defaults: {{args: {{device: cpu}}}}
prefill: {{on: [n3]}}
decode: {decode}
"""

# Lets SGLang compute the ports without a look whether they are free here: others may use them.
OVERRIDE = {"SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": "env://"}


def leader_of(decode: str) -> ProcessSpec:
    topology = load_text(TOPOLOGY.format(decode=decode)).require()
    engine, router = plugins.program("engines", "sglang"), plugins.program("routers", "mini_lb")
    assert engine is not None
    assert router is not None
    programs = Programs(engine=engine, router=router)
    spec = compile_plan(topology, declared(topology.cluster), programs).process("decode-0.0")
    assert spec is not None
    return spec


@pytest.mark.parametrize(
    "decode",
    [
        "{on: [n1], port: 31000, parallel: {tp: 2, attn_dp: 2}}",
        "{on: [n1, n2], nodes: 2, parallel: {tp: 2, attn_dp: 2}}",
    ],
    ids=["one node", "two nodes"],
)
def test_the_family_of_an_attention_dp_instance(real_parser, decode: str) -> None:
    spec = leader_of(decode)
    answer = real_parser("0.5.23").ports(spec.argv[3:], env=OVERRIDE)
    assert answer.error is None
    real = answer.values
    assert len(real) == 7
    assert {claim.name: claim.port for claim in spec.ports if claim.name in real} == real
