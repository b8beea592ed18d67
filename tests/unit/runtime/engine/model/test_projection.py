"""Whatever form a product is computed in, it is the product."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from runtime.engine.model.projection import Projector
from runtime.engine.model.weight_reader import Projection

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("num_rows", [1, 2, 3, 4, 8, 9, 40])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize(("out_size", "in_size"), [(24, 16), (33_000, 96)])
def test_every_form_gives_the_same_numbers(dtype, num_rows, has_bias, out_size, in_size):
    generator = torch.Generator().manual_seed(num_rows)
    rows = torch.randn(num_rows, in_size, generator=generator).to(dtype)
    weight = torch.randn(out_size, in_size, generator=generator).to(dtype)
    bias = torch.randn(out_size, generator=generator).to(dtype) if has_bias else None
    found = Projector(device=CPU, dtype=dtype)(rows, Projection(weight=weight, bias=bias))
    wanted = F.linear(rows.double(), weight.double(), None if bias is None else bias.double())
    assert found.dtype == dtype
    assert found.is_contiguous()
    tolerance = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    assert (found.double() - wanted).norm() / wanted.norm() < tolerance


def test_a_row_longer_than_the_scratch_is_computed_too():
    rows, weight = torch.ones(5, 2**21 + 8).bfloat16(), torch.full((2, 2**21 + 8), 2.0**-21).bfloat16()
    found = Projector(device=CPU, dtype=torch.bfloat16)(rows, Projection(weight=weight, bias=None))
    assert torch.allclose(found.float(), torch.ones(5, 2), atol=0.01)
