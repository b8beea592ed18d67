"""The command line of sglang-router, and how it gets its key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.compiler import Programs, compile_plan
from pdctl.plan.argv import flags_of
from pdctl.plan.model import ProcessSpec
from pdctl.routers.sglang_router import PROGRAM
from pdctl.topology.load import load_text
from pdctl.topology.model import Breaker, HealthCheck, Queue, Retries, Router

Command = Callable[..., ProcessSpec]


@pytest.fixture
def command(make_topology, make_inventory, reference_programs) -> Command:
    """The router's process, in front of two prefill instances and a decode one on 10.0.0.1."""

    def of(**fields: object) -> ProcessSpec:
        router = Router(kind="sglang_router", **fields)
        topology = make_topology(prefill={"instances": 2}, router=router)
        programs = Programs(engine=reference_programs.engine, router=PROGRAM)
        found = compile_plan(topology, make_inventory(1), programs).process("router-0.0")
        assert found is not None
        return found

    return of


def test_it_is_told_every_instance_and_every_bootstrap_port(command: Command) -> None:
    assert " ".join(command().argv) == (
        "python3 -m sglang_router.launch_router --pd-disaggregation --host 10.0.0.1 --port 8000"
        " --prometheus-host 10.0.0.1 --prometheus-port 18000"
        " --prefill http://10.0.0.1:30000 8998 --prefill http://10.0.0.1:30001 8999"
        " --decode http://10.0.0.1:30100"
        " --health-check-interval-secs 5 --health-check-timeout-secs 25"
    )


def test_every_setting_has_its_flag(command: Command) -> None:
    flags = flags_of(
        command(
            policy="cache_aware",
            prefill_policy="bucket",
            decode_policy="round_robin",
            metrics_port=18500,
            request_timeout_s=60,
            retries=Retries(attempts=3, initial_backoff_ms=10, max_backoff_ms=100),
            breaker=Breaker(failures=20, successes=2, open_s=30, window_s=90),
            queue=Queue(max_concurrent=64, size=128, timeout_s=9),
            health_check=HealthCheck(endpoint="/ready", interval_s=2, timeout_s=3, failures=4, successes=1),
        ).argv
    )
    del flags["prefill"], flags["decode"], flags["host"]
    assert {name: values[0] if values else True for name, values in flags.items()} == {
        "pd-disaggregation": True,
        "port": "8000",
        "prometheus-host": "10.0.0.1",
        "prometheus-port": "18500",
        "policy": "cache_aware",
        "prefill-policy": "bucket",
        "decode-policy": "round_robin",
        "request-timeout-secs": "60",
        "retry-max-retries": "3",
        "retry-initial-backoff-ms": "10",
        "retry-max-backoff-ms": "100",
        "cb-failure-threshold": "20",
        "cb-success-threshold": "2",
        "cb-timeout-duration-secs": "30",
        "cb-window-duration-secs": "90",
        "max-concurrent-requests": "64",
        "queue-size": "128",
        "queue-timeout-secs": "9",
        "health-check-endpoint": "/ready",
        "health-check-interval-secs": "2",
        "health-check-timeout-secs": "3",
        "health-failure-threshold": "4",
        "health-success-threshold": "1",
    }


def test_one_attempt_and_no_breaker_are_switches(command: Command) -> None:
    argv = command(retries=Retries(attempts=1), breaker=Breaker(enabled=False)).argv
    assert argv[-2:] == ("--disable-circuit-breaker", "--disable-retries")


def test_what_args_say_wins_over_a_field(command: Command) -> None:
    argv = command(request_timeout_s=60, args={"request-timeout-secs": 90}).argv
    assert flags_of(argv)["request-timeout-secs"] == ("90",)


def test_the_key_is_read_from_the_environment_of_the_node(command: Command) -> None:
    spec = command(api_key_env="ROUTER_KEY")
    assert spec.argv[1] == "-c"
    assert 'os.environ.get("ROUTER_KEY")' in spec.argv[2]
    assert "--api-key" not in spec.argv
    assert spec.env == {}


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ("retries: {initial_backoff_ms: 500, max_backoff_ms: 100}", ["error PD347"]),
        ("retries: {initial_backoff_ms: 500, max_backoff_ms: 500}", []),
        ("queue: {size: 5, timeout_s: 3}", ["warning PD348", "warning PD348"]),
        ("queue: {size: 5, max_concurrent: 9}", []),
    ],
)
def test_settings_that_it_refuses_or_ignores(fields: str, found: list[str]) -> None:
    head = "schema: pdctl/v1\nname: demo\nmodel: {path: m}\nengine: {kind: sglang}\nprefill: {}\ndecode: {}\n"
    text = f"{head}router: {{kind: sglang_router, {fields}}}\n"
    topology = load_text(text).require()
    rules = PROGRAM.rules()
    assert [f"{each.severity} {each.code}" for rule in rules for each in rule.check(topology)] == found
