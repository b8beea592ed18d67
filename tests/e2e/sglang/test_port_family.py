"""Released SGLang computes just the ports that a plan claims beside those of the command line."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pdctl import plugins
from pdctl.compiler import Programs, compile_plan
from pdctl.inventory import declared
from pdctl.plan.model import ProcessSpec
from pdctl.topology.load import load_text

if TYPE_CHECKING:
    from conftest import Testbed

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

# Reads argv of a leader and says which ports its processes will use; a model named `none` is never loaded.
SCRIPT = """\
import json, sys
from sglang.srt.server_args import DP_ATTENTION_HANDSHAKE_PORT_DELTA as HANDSHAKE
from sglang.srt.server_args import PortArgs, prepare_server_args
args = prepare_server_args(json.loads(sys.argv[1]))
ports = PortArgs.init_new(args)
rendezvous = args.dist_init_addr
base = int(rendezvous.rpartition(":")[2]) if rendezvous else args.port
print(json.dumps({
    "tokenizer": ports.tokenizer_ipc_name,
    "detokenizer": ports.detokenizer_ipc_name,
    "rpc": ports.rpc_ipc_name,
    "scheduler-metrics": ports.metrics_ipc_name,
    "scheduler": ports.scheduler_input_ipc_name,
    "loads": ports.load_collector_ipc_name,
    "handshake": f"tcp://{args.host}:{base + HANDSHAKE}",
}))
"""


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
def test_the_family_of_an_attention_dp_instance(testbed: Testbed, decode: str) -> None:
    spec = leader_of(decode)
    ran = subprocess.run(
        [testbed.python, "-c", SCRIPT, json.dumps(spec.argv[3:])],
        # The override keeps it from looking whether the planned ports are free here: others may use them.
        env={**os.environ, "HF_HUB_OFFLINE": "1", "SGLANG_DISTRIBUTED_INIT_METHOD_OVERRIDE": "env://"},
        cwd=Path.home(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    real = {
        name: int(place.rpartition(":")[2]) for name, place in json.loads(ran.stdout.splitlines()[-1]).items()
    }
    assert {claim.name: claim.port for claim in spec.ports if claim.name in real} == real
