"""What ranks tell each other of tensors, the ranks being threads."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from runtime.engine.ranks.comm import TorchComm

CPU = torch.device("cpu")


@pytest.fixture(params=[False, True], ids=["each its own device", "one device for all"])
def on_ranks(request: pytest.FixtureRequest) -> Callable[..., list[torch.Tensor]]:
    """`on_ranks(num_ranks, work)`: what `work(comm, rank)` gives on each."""

    def run(num_ranks: int, work: Callable[[TorchComm, int], torch.Tensor]) -> list[torch.Tensor]:
        store = HashStore()

        def one(rank: int) -> torch.Tensor:
            comm = TorchComm(
                store, rank, num_ranks, host="127.0.0.1", device=CPU, is_device_shared=request.param
            )
            return work(comm, rank)

        with ThreadPoolExecutor(num_ranks) as threads:
            return [*threads.map(one, range(num_ranks))]

    return run


def test_a_sum_is_everybodys_and_takes_the_place_of_the_parts(on_ranks):
    def add(comm: TorchComm, rank: int) -> torch.Tensor:
        tensor = torch.tensor([1.0, 10.0]) * (rank + 1)
        assert comm.sum_(tensor) is tensor
        return tensor

    assert [each.tolist() for each in on_ranks(3, add)] == [[6.0, 60.0]] * 3


def test_columns_of_unequal_widths_are_joined_on_the_leader(on_ranks):
    def join(comm: TorchComm, rank: int) -> torch.Tensor:
        return comm.join_columns(torch.full((2, rank + 1), float(rank)), [1, 2])

    assert on_ranks(2, join)[0].tolist() == [[0.0, 1.0, 1.0]] * 2
