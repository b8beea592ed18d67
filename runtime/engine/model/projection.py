"""The matrix products of the forward pass, nearly all of its time: each has the form its size runs best in.

Measured with torch 2.13 on AVX2 (Zen 3), one thread, ms: the 120 products in the layers of one SmolLM2 step
in bfloat16, and the one of its head in float32.

    rows                            1     2     4     8    16    64
    layers, bfloat16, linear       23    43    85   170   344  1359
    layers, bfloat16, widened      32    50    54    85   101   249
    head, float32, linear         8.7    19    21    24    31     -
    head, float32, weight first   9.1    10    11    17    30     -
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from runtime.engine.model.weight_reader import Projection

_MAX_ROWS_WEIGHT_FIRST = 8
_MIN_ROWS_WIDENED = 4
_SCRATCH_ELEMENTS = 2**21  # 8 MiB of float32: stays in a shared cache


class Projector:
    """Computes projections on one device. Holds scratch memory, so one thread at a time."""

    def __init__(self, *, device: torch.device, dtype: torch.dtype) -> None:
        self._is_cpu = device.type == "cpu"
        is_half = dtype in (torch.bfloat16, torch.float16)
        # Without arithmetic of its own for them the CPU computes half types row by row, slower than float32.
        self._is_widened = (
            self._is_cpu and is_half and torch.backends.cpu.get_cpu_capability() in ("DEFAULT", "AVX2")
        )
        self._scratch = torch.empty(_SCRATCH_ELEMENTS if self._is_widened else 0)

    def __call__(self, rows: Tensor, projection: Projection) -> Tensor:
        """Give `rows W^T + b`, [N, out], contiguous. rows: [N, in]"""
        if self._is_widened and len(rows) >= _MIN_ROWS_WIDENED:
            out = self._widened_product(rows.float(), projection.weight).to(rows.dtype)
        elif self._is_cpu and rows.dtype == torch.float32:
            out = _product(rows, projection.weight)
        else:
            return F.linear(rows, projection.weight, projection.bias)
        return out if projection.bias is None else out.add_(projection.bias)

    def _widened_product(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Turn the weight into float32 by blocks of rows, each used while it is in the cache.

        rows: [N, in] float32; weight: [out, in], half; gives [N, out] float32
        """
        out_size, in_size = weight.shape
        block_len = max(1, min(out_size, _SCRATCH_ELEMENTS // in_size))
        if block_len * in_size > len(self._scratch):  # one row alone is longer
            self._scratch = torch.empty(block_len * in_size)
        wide = self._scratch[: block_len * in_size].view(block_len, in_size)
        blocks = [_product(rows, wide[: len(block)].copy_(block)) for block in weight.split(block_len)]
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)


def _product(rows: Tensor, weight: Tensor) -> Tensor:
    """Give `rows weight^T`, contiguous; few rows with a weight laid out by rows run faster weight first."""
    if 1 < len(rows) <= _MAX_ROWS_WEIGHT_FIRST and weight.is_contiguous():
        # Made contiguous again: attention has no fast path for strided queries.
        return torch.mm(weight, rows.t()).t().contiguous()
    return F.linear(rows, weight)
