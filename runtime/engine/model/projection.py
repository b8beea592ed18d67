"""The matrix products of the forward pass: nearly all of its time."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from runtime.engine.model.weights import Projection


def project(rows: Tensor, projection: Projection) -> Tensor:
    """Give `rows W^T + b`, [N, out]. rows: [N, in]"""
    return F.linear(rows, projection.weight, projection.bias)
