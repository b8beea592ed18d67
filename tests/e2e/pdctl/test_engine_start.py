"""What `pdctl up` shows when the reference engine can't start: the engine's own words, with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).resolve().parents[3]


def test_a_missing_transfer_library_is_told_with_what_to_install(bench, tiny_llama):
    hidden = bench.folder / "hidden"
    hidden.mkdir()
    (hidden / "mooncake.py").write_text("")  # stands before the installed package, and has no `engine`
    (bench.folder / "t.yaml").write_text(
        "schema: pdctl/v1\n"
        "name: bench\n"
        f"model: {{path: {tiny_llama}}}\n"
        "engine: {kind: reference}\n"
        "transfer: {backend: mooncake}\n"
        f"defaults: {{env: {{PYTHONPATH: '{hidden}:{_ROOT}', OMP_NUM_THREADS: '1'}}}}\n"
        f"prefill: {{port: {bench.ports['prefill']}, bootstrap_port: {bench.ports['bootstrap']}}}\n"
        f"decode: {{port: {bench.ports['decode']}}}\n"
        f"router: {{port: {bench.ports['router']}}}\n"
    )
    up = bench.pdctl("up", "t.yaml", timeout_s=120, PYTHONPATH=str(_ROOT))
    assert up.code == 1
    assert "exited with code 1 before the deployment was ready" in up.err
    said = " ".join(up.err.split())  # long lines are folded
    assert "the library of the mooncake backend is missing" in said
    assert "pip install 'pdctl[mooncake]'" in said
    bench.pdctl("down", "bench", PYTHONPATH=str(_ROOT))
    assert bench.marked_pids() == []
