from __future__ import annotations

import pytest

from runtime.router.address import Role, parse_prefill, parse_worker_url


def test_prefill_takes_a_url_and_a_bootstrap_port() -> None:
    address = parse_prefill(["http://10.0.0.1:30000/", "8998"])
    assert (address.role, address.url, address.host, address.port, address.bootstrap_port) == (
        Role.PREFILL,
        "http://10.0.0.1:30000",
        "10.0.0.1",
        30000,
        8998,
    )


@pytest.mark.parametrize("values", [["http://a:1"], ["http://a:1", "none"], ["http://a:1", "None"]])
def test_bootstrap_port_may_be_absent(values: list[str]) -> None:
    assert parse_prefill(values).bootstrap_port is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["http://a:1", "0"], "bootstrap port"),
        (["http://a:1", "70000"], "bootstrap port"),
        (["http://a:1", "x"], "bootstrap port"),
        (["http://a:1", "1", "2"], "found 3 values"),
        (["https://a:1"], "wanted http://HOST:PORT"),
        (["a:1"], "wanted http://HOST:PORT"),
        (["http://a:1/v1"], "nothing after it"),
        (["http://a:99999"], "ort out of range"),
    ],
)
def test_unusable_prefill_is_refused_by_name(values: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_prefill(values)


def test_ipv6_host_has_brackets_in_the_host_header_only() -> None:
    address = parse_worker_url("http://[::1]:30000", Role.DECODE)
    assert address.host == "::1"
    assert address.authority == "[::1]:30000"
