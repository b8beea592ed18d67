"""Command line of the mini load balancer. Flags that sglang-router also has keep its spelling and meaning."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from runtime.router.address import Role, WorkerAddress, parse_prefill, parse_worker_url

MAX_PAYLOAD_BYTES = 512 * 1024 * 1024


class PolicyName(StrEnum):
    """How one worker of a role is chosen among the healthy ones."""

    RANDOM = "random"
    ROUND_ROBIN = "round_robin"
    LEAST_IN_FLIGHT = "least_in_flight"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthSettings:
    endpoint: str
    interval_s: float
    timeout_s: float
    failure_threshold: int  # bad polls in a row that take a worker out
    success_threshold: int  # good polls in a row that bring it back


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrySettings:
    max_attempts: int  # the first one included
    initial_backoff_s: float
    max_backoff_s: float
    multiplier: float
    jitter: float  # 0.2 spreads each delay by up to 20 % either way


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterSettings:
    host: str
    port: int
    prefill: tuple[WorkerAddress, ...]
    decode: tuple[WorkerAddress, ...]
    prefill_policy: PolicyName
    decode_policy: PolicyName
    health: HealthSettings
    retry: RetrySettings
    request_timeout_s: float
    shutdown_grace_s: float
    max_payload_bytes: int
    log_level: str


def parse_settings(argv: Sequence[str] | None = None) -> RouterSettings:
    """Read argv into settings; argparse exits with code 2 on anything it cannot use."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        prefill = tuple(parse_prefill(values) for values in args.prefill)
        decode = tuple(parse_worker_url(url, Role.DECODE) for url in args.decode)
    except ValueError as error:
        parser.error(str(error))
    return RouterSettings(
        host=args.host,
        port=args.port,
        prefill=prefill,
        decode=decode,
        prefill_policy=args.prefill_policy or args.policy,
        decode_policy=args.decode_policy or args.policy,
        health=HealthSettings(
            endpoint=args.health_check_endpoint,
            interval_s=args.health_check_interval_secs,
            timeout_s=args.health_check_timeout_secs,
            failure_threshold=args.health_failure_threshold,
            success_threshold=args.health_success_threshold,
        ),
        retry=RetrySettings(
            # sglang-router counts attempts under this name, so 5 means five in all, and so it does here.
            max_attempts=1 if args.disable_retries else args.retry_max_retries,
            initial_backoff_s=args.retry_initial_backoff_ms / 1000,
            max_backoff_s=args.retry_max_backoff_ms / 1000,
            multiplier=args.retry_backoff_multiplier,
            jitter=args.retry_jitter_factor,
        ),
        request_timeout_s=args.request_timeout_secs,
        shutdown_grace_s=args.shutdown_grace_period_secs,
        max_payload_bytes=args.max_payload_size,
        log_level=args.log_level,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runtime.router",
        description="Join a prefill and a decode worker per request and return the decode worker's answer.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1")
    add("--port", type=_port, default=30000)
    add("--prefill", nargs="+", action="append", required=True, metavar=("URL", "BOOTSTRAP_PORT"))
    add("--decode", action="append", required=True, metavar="URL")
    add("--policy", type=PolicyName, choices=list(PolicyName), default=PolicyName.ROUND_ROBIN)
    add(
        "--prefill-policy", type=PolicyName, choices=list(PolicyName), help="instead of --policy, for prefill"
    )
    add("--decode-policy", type=PolicyName, choices=list(PolicyName), help="instead of --policy, for decode")
    add("--health-check-endpoint", default="/health")
    add("--health-check-interval-secs", type=_positive_float, default=60.0)
    add("--health-check-timeout-secs", type=_positive_float, default=5.0)
    add("--health-failure-threshold", type=_positive_int, default=3)
    add("--health-success-threshold", type=_positive_int, default=2)
    add("--retry-max-retries", type=_positive_int, default=5, help="attempts in all, the first one included")
    add("--retry-initial-backoff-ms", type=_positive_float, default=50.0)
    add("--retry-max-backoff-ms", type=_positive_float, default=30000.0)
    add("--retry-backoff-multiplier", type=_positive_float, default=1.5)
    add("--retry-jitter-factor", type=_fraction, default=0.2)
    add("--disable-retries", action="store_true")
    add(
        "--request-timeout-secs",
        type=_positive_float,
        default=1800.0,
        help="whole request, all attempts together",
    )
    add(
        "--shutdown-grace-period-secs",
        type=_positive_float,
        default=180.0,
        help="for requests in flight at SIGTERM",
    )
    add(
        "--max-payload-size",
        type=_positive_int,
        default=MAX_PAYLOAD_BYTES,
        help="largest request body, bytes",
    )
    add(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default=os.environ.get("PDCTL_LOG_LEVEL", "info"),
    )
    return parser


def _port(text: str) -> int:
    number = int(text)
    if not 0 <= number < 65536:
        raise argparse.ArgumentTypeError(f"must be 0 to 65535, found {number}")
    return number


def _positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {number}")
    return number


def _positive_float(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"must be above 0, found {text}")
    return number


def _fraction(text: str) -> float:
    number = float(text)
    if not 0 <= number <= 1:
        raise argparse.ArgumentTypeError(f"must be between 0 and 1, found {text}")
    return number
