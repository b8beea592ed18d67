"""The kernel of the staging copies against torch's own, bit for bit: on a GPU, or in Triton's interpreter."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from runtime.kv.layout import KVLayout
from runtime.kv.pool import KVPool
from runtime.kv.staging_copy import block_bytes, gather_heads, scatter_heads

ROOT = Path(__file__).parents[4]
NUM_PAGES = 12
# dtype, heads of the pool, head_dim, page size, heads of the slice, tokens
SHAPES = (
    (torch.bfloat16, 8, 64, 16, 2, 70),  # ragged: the last page is not full
    (torch.bfloat16, 4, 64, 8, 4, 64),  # whole slots
    (torch.float32, 3, 20, 1, 1, 9),  # pages of one token
    (torch.float16, 6, 24, 4, 3, 13),  # rows of no power of two, so of several parts
    (torch.uint8, 2, 9, 4, 1, 13),  # no word wider than a byte
    (torch.float32, 8, 128, 2, 8, 3),  # rows in several parts
)


def _layout(dtype: torch.dtype, num_heads: int, head_dim: int, page_size: int) -> KVLayout:
    return KVLayout(
        num_layers=2,
        num_pages=NUM_PAGES,
        page_size=page_size,
        num_kv_heads=num_heads,
        head_dim=head_dim,
        dtype_bytes=dtype.itemsize,
    )


def _compare(device: torch.device, shape_number: int) -> None:
    """Gather, scatter and, where slices fill a slot, the scatter of all senders at once."""
    from runtime.kv.staging_gpu import HeadCopier  # decides at its import whether it is interpreted

    dtype, num_heads, head_dim, page_size, slice_heads, num_tokens = SHAPES[shape_number]
    layout = _layout(dtype, num_heads, head_dim, page_size)
    here = torch.device("cpu")  # where torch's own copies work
    theirs, ours = KVPool(layout, device=here, dtype=dtype), KVPool(layout, device=device, dtype=dtype)
    theirs.as_bytes().random_(0, 256)
    ours.as_bytes().copy_(theirs.as_bytes())
    copier = HeadCopier(ours.tensor, layout)
    pages = random.Random(shape_number).sample(range(NUM_PAGES), -(-num_tokens // page_size))
    heads = range(num_heads - slice_heads, num_heads)
    size = block_bytes(layout, num_heads=slice_heads, num_tokens=num_tokens)

    block, wanted = torch.zeros(size, dtype=torch.uint8, device=device), torch.zeros(size, dtype=torch.uint8)
    copier.gather(copier.page_list(pages), heads, block, num_tokens=num_tokens)
    gather_heads(theirs.tensor, pages, heads, wanted, num_tokens=num_tokens)
    assert torch.equal(block.cpu(), wanted)

    for each in (ours, theirs):
        each.as_bytes().fill_(7)
    copier.scatter(block, copier.page_list(pages), heads, num_tokens=num_tokens)
    scatter_heads(wanted, theirs.tensor, pages, heads, num_tokens=num_tokens)
    assert torch.equal(ours.as_bytes().cpu(), theirs.as_bytes())

    num_senders, aligned = num_heads // slice_heads, -(-size // 16) * 16
    blocks = torch.randint(0, 256, (num_senders * aligned,), dtype=torch.uint8)
    blocks_there = blocks.to(device)
    if num_senders > 1:
        addresses = copier.address_list(
            [blocks_there[each * aligned :][:size] for each in range(num_senders)]
        )
        copier.scatter_all(addresses, copier.page_list(pages), range(slice_heads), num_tokens=num_tokens)
        for number in range(num_senders):
            own = range(number * slice_heads, (number + 1) * slice_heads)
            part = blocks[number * aligned :][:size]
            scatter_heads(part, theirs.tensor, pages, own, num_tokens=num_tokens)
        assert torch.equal(ours.as_bytes().cpu(), theirs.as_bytes())


def test_in_the_interpreter_the_kernel_copies_what_torch_copies():
    """In a process of its own: Triton decides when it is imported whether kernels are interpreted."""
    program = (
        "import json, sys, torch, runpy\n"
        f"scope = runpy.run_path({str(Path(__file__))!r})\n"
        "for number in range(len(scope['SHAPES'])):\n"
        "    scope['_compare'](torch.device('cpu'), number)\n"
        "print(json.dumps(number + 1))\n"
    )
    environ = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environ, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == len(SHAPES)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("number", range(len(SHAPES)))
def test_on_a_gpu_the_kernel_copies_what_torch_copies(number: int):
    _compare(torch.device("cuda"), number)
