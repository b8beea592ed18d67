from __future__ import annotations

from collections.abc import Callable

import pytest

Found = Callable[..., list[str]]


def test_every_port_below_1024_is_a_warning(found: Found) -> None:
    lines = "prefill: {port: 1, bootstrap_port: 1023}\ndecode: {port: 512}\nrouter: {port: 443}\n"
    assert [each.split()[1] for each in found(lines, "PD409")] == ["1:17", "1:36", "2:16", "3:16"]
    assert all(each.startswith("warning") for each in found(lines, "PD409"))


def test_ports_from_1024_up_are_fine(found: Found) -> None:
    assert found("prefill: {port: 1024}\nrouter: {port: 65535}\n", "PD409") == []


SEVERAL = "cluster:\n  executor: ssh\n  nodes: [{{name: a, address: {0}}}, {{name: b, address: 10.0.0.2}}]\n"
ALONE = "cluster:\n  executor: ssh\n  nodes: [{{name: a, address: {0}}}]\n"


@pytest.mark.parametrize(
    ("cluster", "address", "is_refused"),
    [
        (SEVERAL, "127.0.0.1", True),
        (SEVERAL, "localhost", True),
        (SEVERAL, "'::1'", True),
        (SEVERAL, "localhost.localdomain", True),
        (SEVERAL, "'::ffff:127.0.0.1'", True),
        (SEVERAL, "0.0.0.0", True),
        (SEVERAL, "'0'", True),
        (SEVERAL, "'2130706433'", True),  # 127.0.0.1 as one number
        (SEVERAL, "10.0.0.1", False),
        (SEVERAL, "gpu-node-1", False),
        (ALONE, "127.0.0.1", False),  # all processes share one host
        (ALONE, "0.0.0.0", True),
        (ALONE, "'::'", True),
    ],
)
def test_addresses_are_where_peers_connect_to(
    found: Callable[..., list[str]], cluster: str, address: str, is_refused: bool
) -> None:
    assert len(found(cluster.format(address), "PD424")) == is_refused


def test_bootstrap_and_http_ports_differ(found: Callable[..., list[str]]) -> None:
    assert found("prefill: {port: 9000, bootstrap_port: 9001}\n", "PD425") == []
    assert found("prefill: {port: 9000, bootstrap_port: 9000}\n", "PD425") == [
        "error 1:39 `bootstrap_port` and `port` are both 9000"
    ]


@pytest.mark.parametrize(
    ("address", "is_one"),
    [
        ("10.0.0.1", True),
        ("fd00::1", True),
        ("node-1.cluster.local", True),
        ("1node", True),
        ("10.0.0.1:22", False),
        ("node:22", False),
        ("10.0.0.300", False),
        ("10.0.0", False),
        ("fd00::1::2", False),
    ],
)
def test_addresses_are_addresses_or_names(found: Found, address: str, is_one: bool) -> None:
    cluster = f'cluster: {{executor: ssh, nodes: [{{name: a, address: "{address}"}}]}}\n'
    told = [f"error 1:53 `{address}` is neither an IP address nor the name of a host"]
    assert found(cluster, "PD125") == ([] if is_one else told)
