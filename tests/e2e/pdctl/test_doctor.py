"""`pdctl doctor` on this machine, with a deployment that runs and without."""

from __future__ import annotations

import socket

import pytest

pytestmark = pytest.mark.slow


def verdicts(ran) -> dict[str, tuple[str, str]]:
    return {each["check"]: (each["standing"], each["text"]) for each in ran.json["verdicts"]}


def test_a_topology_is_looked_at_before_during_and_after_its_deployment_runs(bench):
    bench.topology()
    before = bench.pdctl("doctor", "t.yaml", "--json")
    assert (before.code, before.json["is_fit"]) == (0, True)
    assert verdicts(before)["ports"] == ("ok", "free")
    assert verdicts(before)["programs"][0] == "ok"

    assert bench.pdctl("up", "t.yaml").code == 0
    by_name = bench.pdctl("doctor", "bench", "--json")
    assert by_name.code == 0, by_name.out
    assert verdicts(by_name)["ports"] == ("ok", "held by this very deployment")
    assert verdicts(by_name)["leftovers"] == ("ok", "runs `bench`")
    bench.pdctl("down", "bench")


def test_errors_end_with_1_and_are_told_with_a_hint(bench):
    with socket.create_server(("127.0.0.1", bench.ports["decode"])):
        ran = bench.pdctl("doctor", bench.topology(), "--set", "router.python=/nowhere/python")
    assert ran.code == 1
    assert f"error[PD410]: on localhost: port {bench.ports['decode']} is taken by process" in ran.out
    assert "error[PD717]: on localhost: `/nowhere/python` can't be run" in ran.out
    assert "bench: 2 errors on 1 node" in ran.out


def test_a_name_takes_no_overlays(bench):
    ran = bench.pdctl("doctor", "bench", "--set", "decode.instances=2")
    assert ran.code == 1
    assert "`--set`, `--profile` and `--engine` overlay a file" in ran.err
