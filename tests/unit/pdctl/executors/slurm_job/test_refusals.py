"""Slurm's sentences, each at the key that it is about."""

from __future__ import annotations

import pytest

from pdctl.executors.slurm_job.faults import means_silence, refused
from pdctl.executors.slurm_job.refusals import refusal
from pdctl.topology.load import load_text

DOCUMENT = """\
schema: pdctl/v1
name: demo
model: {path: builtin:x}
engine: {kind: reference}
prefill: {}
decode: {}
cluster:
  executor: slurm
  nodes: 2
  devices_per_node: 8
  slurm:
    partition: gpus
    account: llm
    time_limit: 60
    segment: 2
    constraint: ib
    nodelist: [n1]
    sbatch_args: [--mail-type=END, --planet=mars]
"""


@pytest.mark.parametrize(
    ("words", "path", "line"),
    [
        ("sbatch: error: invalid partition specified: gpus\nsbatch: error: Batch job submission failed:"
         " Invalid partition name specified", "cluster.slurm.partition", 12),
        ("Invalid account or account/partition combination specified", "cluster.slurm.account", 13),
        ("Requested time limit is invalid (missing or exceeds some limit)", "cluster.slurm.time_limit", 14),
        ("sbatch: error: Invalid generic resource (gres) specification", "cluster.devices_per_node", 10),
        ("sbatch: error: Invalid --segment specification", "cluster.slurm.segment", 15),
        ("sbatch: unrecognized option '--segment=2'", "cluster.slurm.segment", 15),
        ("sbatch: unrecognized option '--planet=mars'", "cluster.slurm.sbatch_args.1", 18),
        ("Batch job submission failed: Invalid feature specification", "cluster.slurm.constraint", 16),
        ("Batch job submission failed: Invalid node name specified", "cluster.slurm.nodelist", 17),
        ("Batch job submission failed: Node count specification invalid", "cluster.nodes", 9),
        ("Requested node configuration is not available", "cluster.devices_per_node", 10),
        ("Batch job submission failed: Invalid qos specification", "cluster.slurm.qos", 11),
        ("cli_filter: not on a Monday", "cluster.slurm", 12),
    ],
)  # fmt: skip
def test_a_refusal_is_told_at_the_key_that_it_is_about(words, path, line):
    topology = load_text(DOCUMENT).require()
    (found,) = refusal(refused("sbatch", words), topology).diagnostics
    assert (found.code, found.path) == ("PD532", path)
    assert found.span is not None
    assert found.span.line == line


def test_slurms_own_words_stand_on_one_line_once():
    words = "sbatch: error: no\nsbatch: error: no\nsbatch: warning: old\n"
    (found,) = refusal(refused("sbatch", words), load_text(DOCUMENT).require()).diagnostics
    assert found.message == "Slurm refuses the job: no; old"


@pytest.mark.parametrize(
    "words",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "squeue: error: Zero Bytes were transmitted or received",
        "sbatch: error: Batch job submission failed: Slurm backup controller in standby mode",
    ],
)
def test_no_answer_is_told_from_a_no(words):
    assert means_silence(words)
    assert not means_silence("Invalid partition name specified")
