from __future__ import annotations

import pytest

from runtime.router.settings import PolicyName, parse_settings

WORKERS = ["--prefill", "http://10.0.0.1:30000", "8998", "--decode", "http://10.0.0.2:30001"]


def test_one_policy_holds_for_both_roles_unless_a_role_has_its_own() -> None:
    settings = parse_settings([*WORKERS, "--policy", "random", "--decode-policy", "least_in_flight"])
    assert settings.prefill_policy is PolicyName.RANDOM
    assert settings.decode_policy is PolicyName.LEAST_IN_FLIGHT


def test_several_workers_keep_their_order() -> None:
    argv = [*WORKERS, "--prefill", "http://10.0.0.3:1", "--decode", "http://10.0.0.4:2"]
    settings = parse_settings(argv)
    assert [worker.host for worker in settings.prefill] == ["10.0.0.1", "10.0.0.3"]
    assert [worker.host for worker in settings.decode] == ["10.0.0.2", "10.0.0.4"]


def test_milliseconds_become_seconds_and_disabled_retries_one_attempt() -> None:
    settings = parse_settings([*WORKERS, "--retry-initial-backoff-ms", "50", "--disable-retries"])
    assert settings.retry.initial_backoff_s == 0.05
    assert settings.retry.max_attempts == 1


@pytest.mark.parametrize(
    "flags",
    [
        ["--policy", "cache_aware"],
        ["--port", "65536"],
        ["--health-check-interval-secs", "0"],
        ["--health-failure-threshold", "0"],
        ["--retry-jitter-factor", "2"],
        ["--request-timeout-secs", "inf"],
        ["--polic", "random"],
        ["--decode", "ftp://a:1"],
    ],
)
def test_bad_flag_ends_with_exit_code_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_settings([*WORKERS, *flags])
    assert ended.value.code == 2
    assert "error:" in capsys.readouterr().err
