from __future__ import annotations

import sys

import pytest

from runtime.transfer.base import TransferError
from runtime.transfer.plugins import load_backend


@pytest.mark.parametrize(
    ("name", "modules"),
    [
        ("mooncake", ["mooncake.engine"]),
        ("nixl", ["nixl._api", "nixl_cu13._api"]),
        ("ascend", ["memfabric_hybrid"]),
    ],
)
def test_a_missing_library_is_told_with_what_to_install(monkeypatch, name, modules):
    for module in modules:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(TransferError, match=rf"library of the {name} backend is missing .*pdctl\[{name}\]"):
        load_backend(name)(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=1.0)


def test_one_build_of_nixl_is_enough(monkeypatch):
    monkeypatch.setitem(sys.modules, "nixl._api", None)
    load_backend("nixl")(host="127.0.0.1", advertised_host="127.0.0.1", stall_timeout_s=1.0).close()
