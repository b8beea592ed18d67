from __future__ import annotations

from collections.abc import Callable

Found = Callable[..., list[str]]


def test_every_port_below_1024_is_a_warning(found: Found) -> None:
    lines = "prefill: {port: 1, bootstrap_port: 1023}\ndecode: {port: 512}\nrouter: {port: 443}\n"
    assert [each.split()[1] for each in found(lines, "PD409")] == ["1:17", "1:36", "2:16", "3:16"]
    assert all(each.startswith("warning") for each in found(lines, "PD409"))


def test_ports_from_1024_up_are_fine(found: Found) -> None:
    assert found("prefill: {port: 1024}\nrouter: {port: 65535}\n", "PD409") == []
