"""Gather and scatter of staging blocks on a GPU against a plain copy of the same bytes, and against SGLang's.

    python benchmarks/gpu/staging_kernels.py [--sglang SITE_PACKAGES] [--sweep] [--json FILE]

GB/s count bytes read and bytes written. All of one line are measured in turns on the same buffers, page lists
on the host as an engine has them, the median of several rounds of calls one after the other, so that what the
host does for a call counts. Pages are in random order. Every result is compared with torch's own indexing
first. SGLang's kernels are loaded from its file alone (`disaggregation/common/staging_buffer.py`).
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from torch import Tensor

from runtime.kv import staging_gpu
from runtime.kv.layout import KVLayout
from runtime.kv.staging_gpu import HeadCopier

POOL_HEADS = 8
HEAD_DIM = 128
DTYPE = torch.bfloat16
ROUNDS = 7
MIN_ROUND_S = 0.02
DEVICE = torch.device("cuda")


@dataclass(frozen=True, kw_only=True)
class Case:
    num_layers: int
    num_heads: int  # of the slice; the pool has POOL_HEADS
    num_tokens: int
    page_size: int

    @property
    def num_bytes(self) -> int:
        return 2 * self.num_layers * self.num_heads * HEAD_DIM * DTYPE.itemsize * self.num_tokens

    @property
    def num_writers(self) -> int:
        return POOL_HEADS // self.num_heads

    @property
    def title(self) -> str:
        return (
            f"{self.num_bytes / 1e6:6.0f} MB  {self.num_layers} layers, "
            f"{self.num_heads} of {POOL_HEADS} heads, {self.num_tokens:,} tokens, pages of {self.page_size}"
        )


CASES = (
    *(
        Case(num_layers=64, num_heads=2, num_tokens=num_tokens, page_size=page_size)
        for num_tokens in (1024, 4096, 8192)
        for page_size in (1, 16, 64)
    ),
    Case(num_layers=32, num_heads=2, num_tokens=2048, page_size=64),
    Case(num_layers=64, num_heads=2, num_tokens=65536, page_size=64),
    *(
        Case(num_layers=64, num_heads=POOL_HEADS, num_tokens=num_tokens, page_size=page_size)
        for num_tokens in (256, 2048)
        for page_size in (1, 16, 64)
    ),
)


class Bench:
    """The buffers of one case. `pool`: [L, 2, P, S, H, D]; SGLang wants [slots, H, D] per layer, K and V."""

    def __init__(self, case: Case, sglang: ModuleType | None) -> None:
        self.case = case
        self.sglang = sglang
        num_pages = case.num_tokens // case.page_size
        self.layout = KVLayout(
            num_layers=case.num_layers,
            num_pages=num_pages + num_pages // 4 + 1,
            page_size=case.page_size,
            num_kv_heads=POOL_HEADS,
            head_dim=HEAD_DIM,
            dtype_bytes=DTYPE.itemsize,
        )
        shape = (case.num_layers, 2, self.layout.num_pages, case.page_size, POOL_HEADS, HEAD_DIM)
        self.pool = torch.empty(shape, dtype=DTYPE, device=DEVICE)
        self.pool.view(torch.int16).random_()
        chosen = np.random.default_rng(1).permutation(self.layout.num_pages)[:num_pages]
        self.pages = np.ascontiguousarray(chosen, dtype=np.int64)
        self.copier = HeadCopier(self.pool, self.layout)
        self.heads = range(POOL_HEADS - case.num_heads, POOL_HEADS)
        self.block = torch.zeros(case.num_bytes, dtype=torch.uint8, device=DEVICE)
        # Every writer's block, one behind the other, as SGLang's scatter wants them.
        self.blocks = torch.empty(case.num_bytes * case.num_writers, dtype=torch.uint8, device=DEVICE)
        self.other = torch.empty_like(self.blocks)
        self.addresses = self.copier.address_list([block for block, _ in self._staged()])
        self.page_list = torch.as_tensor(self.pages, dtype=torch.int32, device=DEVICE)
        slots = self.pool.flatten(2, 3)
        self.keys = [slots[layer, 0] for layer in range(case.num_layers)]
        self.values = [slots[layer, 1] for layer in range(case.num_layers)]

    def gather(self) -> None:
        self.copier.gather(self.copier.page_list(self.pages), self.heads, self.block)

    def gather_again(self) -> None:
        """With a page list that another copy of the chunk has brought to the device."""
        self.copier.gather(self.page_list, self.heads, self.block)

    def scatter(self) -> None:
        self._scatter(self.copier.page_list(self.pages))

    def scatter_again(self) -> None:
        self._scatter(self.page_list)

    def _scatter(self, pages: Tensor) -> None:
        if self.case.num_writers == 1:
            self.copier.scatter(self.blocks, pages, self.heads)
        else:
            self.copier.scatter_all(self.addresses, pages, range(self.case.num_heads))

    def scatter_one(self) -> None:
        """The block of one of the writers, as it comes."""
        self.copier.scatter(self.block, self.page_list, self.heads)

    def copy_block(self) -> None:
        self.other[: self.case.num_bytes].copy_(self.block)

    def copy_blocks(self) -> None:
        self.other.copy_(self.blocks)

    def their_gather(self) -> None:
        assert self.sglang is not None
        self.sglang.gather_all_layers_to_staging(
            self.keys,
            self.values,
            self.pages,
            self.their_buffer,
            self.heads.start,
            self.case.num_heads,
            self.case.page_size,
            0,
        )

    def their_scatter(self) -> None:
        assert self.sglang is not None
        pages = torch.as_tensor(self.pages, device=DEVICE)
        self.sglang.scatter_staging_to_kv(
            self.blocks,
            self.keys,
            self.values,
            pages,
            self.case.page_size,
            self.case.num_writers,
            1,
            0,
            POOL_HEADS,
        )

    @property
    def their_buffer(self):
        assert self.sglang is not None
        if not hasattr(self, "_theirs"):
            self._theirs = self.sglang.StagingBuffer(self.case.num_bytes, "cuda:0", 0)
        return self._theirs

    def _staged(self) -> list[tuple[Tensor, range]]:
        size, num_heads = self.case.num_bytes, self.case.num_heads
        return [
            (
                self.blocks[writer * size : (writer + 1) * size],
                range(writer * num_heads, (writer + 1) * num_heads),
            )
            for writer in range(self.case.num_writers)
        ]

    def check(self) -> None:
        """Both directions against torch's indexing, bit for bit, and pages of others untouched."""
        pages = torch.as_tensor(self.pages, device=DEVICE)
        self.gather()
        wanted = self.pool[:, :, pages][..., self.heads.start : self.heads.stop, :]
        assert torch.equal(self.block, wanted.contiguous().view(-1).view(torch.uint8)), "gather differs"
        del wanted
        before = self.pool.clone()
        self.blocks.random_(0, 255)
        self.scatter()
        for block, heads in self._staged():
            rows = block.view(DTYPE).view(*before[:, :, pages].shape[:4], self.case.num_heads, HEAD_DIM)
            before[:, :, pages, :, heads.start : heads.stop] = rows
        assert torch.equal(before.view(torch.int16), self.pool.view(torch.int16)), "scatter differs"


def seconds(call: Callable[[], None]) -> float:
    """Of one call among many, host and device."""
    call()
    torch.cuda.synchronize()
    began = time.perf_counter()
    call()
    torch.cuda.synchronize()
    num_calls = max(3, min(400, int(MIN_ROUND_S / (time.perf_counter() - began))))
    began = time.perf_counter()
    for _ in range(num_calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / num_calls


def medians(calls: dict[str, Callable[[], None]]) -> dict[str, float]:
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            rounds[name].append(seconds(call))
    return {name: statistics.median(each) for name, each in rounds.items()}


def measure(case: Case, sglang: ModuleType | None) -> dict[str, object]:
    bench = Bench(case, sglang)
    bench.check()
    calls = {
        "copy": bench.copy_block,
        "gather": bench.gather,
        "gather_again": bench.gather_again,
        "copy_all": bench.copy_blocks,
        "scatter": bench.scatter,
        "scatter_again": bench.scatter_again,
        "scatter_one": bench.scatter_one,
    }
    if sglang is not None:
        calls |= {"sglang_gather": bench.their_gather, "sglang_scatter": bench.their_scatter}
    found = medians(calls)
    num_bytes = dict.fromkeys(
        ("copy", "gather", "gather_again", "scatter_one", "sglang_gather"), case.num_bytes
    )
    every = case.num_bytes * case.num_writers
    rate = {name: 2 * num_bytes.get(name, every) / each / 1e9 for name, each in found.items()}
    return {
        "case": case.title,
        "bytes": case.num_bytes,
        "milliseconds": {name: round(1e3 * each, 4) for name, each in found.items()},
        "gb_per_s": {name: round(each) for name, each in rate.items()},
        "gather_of_copy": [round(found["copy"] / found[name], 3) for name in ("gather", "gather_again")],
        "scatter_of_copy": [
            round(found["copy_all"] / found[name], 3) for name in ("scatter", "scatter_again")
        ],
        "scatter_one_of_copy": round(found["copy"] / found["scatter_one"], 3),
        "gather_of_sglang": round(found["sglang_gather"] / found["gather"], 2) if sglang else None,
        "scatter_of_sglang": round(found["sglang_scatter"] / found["scatter"], 2) if sglang else None,
    }


def load_sglang(site: Path) -> ModuleType:
    path = site / "sglang" / "srt" / "disaggregation" / "common" / "staging_buffer.py"
    spec = importlib.util.spec_from_file_location("sglang_staging_buffer", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def sweep() -> None:
    """Shapes of a program, to choose the constants of `staging_gpu` by."""
    for case in (CASES[2], CASES[6], CASES[8], CASES[-3]):
        bench = Bench(case, None)
        num_writers = case.num_writers
        copies = medians({"copy": bench.copy_block, "copy_all": bench.copy_blocks})
        print(case.title, {name: round(1e3 * each, 4) for name, each in copies.items()}, num_writers)
        for words, warps in itertools.product((512, 1024, 2048, 4096), (4, 8)):
            staging_gpu.WORDS_PER_PROGRAM, staging_gpu.NUM_WARPS = words, warps
            bench.copier = HeadCopier(bench.pool, bench.layout)
            found = medians({"gather": bench.gather_again, "scatter": bench.scatter_again})
            gather, scatter = copies["copy"] / found["gather"], copies["copy_all"] / found["scatter"]
            print(f"  {words:5} words, {warps} warps: {gather:.3f} {scatter:.3f} of a copy")
        del bench
        torch.cuda.empty_cache()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sglang", type=Path, help="folder that has the package sglang")
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.sweep:
        sweep()
        return
    sglang = load_sglang(options.sglang) if options.sglang else None
    results = []
    for case in CASES:
        found = measure(case, sglang)
        results.append(found)
        rates = "  ".join(f"{name} {rate}" for name, rate in found["gb_per_s"].items())  # type: ignore[union-attr]
        print(
            f"{case.title}\n    {rates} GB/s\n    of a copy: gather {found['gather_of_copy']}, "
            f"scatter {found['scatter_of_copy']}; of SGLang: {found['gather_of_sglang']}, "
            f"{found['scatter_of_sglang']}",
            flush=True,
        )
        torch.cuda.empty_cache()
    if options.json:
        device = torch.cuda.get_device_name()
        options.json.write_text(
            json.dumps({"date": time.strftime("%Y-%m-%d"), "device": device, "cases": results}, indent=1)
        )


if __name__ == "__main__":
    main()
