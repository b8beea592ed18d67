"""Flags that a release renamed without changing what they take.

A topology may say the new name for every version: where a version lacks it, the old one is meant. The other
way round the old name is refused with the new one as the hint, as the engine itself does in the end.

Sources: the registrations with `DeprecatedAliasStoreAction` and `DeprecatedStoreTrueAction` in
sglang/srt/server_args.py of 0.5.12.post1 to 0.5.19; the graph of decode was the only one before 0.5.14.
"""

from __future__ import annotations

from collections.abc import Mapping

# New name to old one.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "cuda-graph-bs-decode": "cuda-graph-bs",
        "cuda-graph-max-bs-decode": "cuda-graph-max-bs",
        "disable-decode-cuda-graph": "disable-cuda-graph",
        "cuda-graph-bs-prefill": "piecewise-cuda-graph-tokens",
        "cuda-graph-max-bs-prefill": "piecewise-cuda-graph-max-tokens",
        "cuda-graph-tc-compiler": "piecewise-cuda-graph-compiler",
        "dsa-decode-backend": "nsa-decode-backend",
        "dsa-prefill-backend": "nsa-prefill-backend",
        "incremental-streaming-output": "stream-output",
        "mamba-radix-cache-strategy": "mamba-scheduler-strategy",
        "speculative-draft-window-size": "speculative-dflash-draft-window-size",
    }
}
