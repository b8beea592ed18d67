from __future__ import annotations

import pytest

from runtime.transfer import tcp
from runtime.transfer.base import TransferError
from runtime.transfer.plugins import backend_names, load_backend


def test_a_backend_is_found_by_its_modules_name():
    assert "tcp" in backend_names()
    assert load_backend("tcp") is tcp.open_backend


@pytest.mark.parametrize("name", ["infiniband", "base", "plugins", "../tcp", "", "tcp.frames"])
def test_an_unknown_name_is_told_the_known_ones(name):
    with pytest.raises(TransferError) as caught:
        load_backend(name)
    assert f"unknown transfer backend `{name}`, known: " in str(caught.value)
    assert "tcp" in str(caught.value)
