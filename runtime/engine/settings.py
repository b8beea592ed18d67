"""Command line of the reference engine. Flags that SGLang also has keep SGLang's spelling and meaning."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Mode(StrEnum):
    """What part of a request this process computes."""

    UNIFIED = "null"  # SGLang's word for "not disaggregated"
    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """Everything the engine is told at start. Seconds end in `_s`; token counts are slots of the KV pool."""

    model_path: str
    served_model_name: str
    host: str
    port: int
    mode: Mode
    transfer_backend: str
    transfer_threads: int | None  # of a rank's sends; None: by the number of CPUs
    transfer_queues: int
    ib_devices: tuple[str, ...]
    nixl_plugin: str
    ascend_protocol: str
    staging: bool  # head slices by way of staging buffers, between unequal attention splits
    staging_block_mb: int | None  # None: one prefill chunk
    staging_pool_mb: int  # of a decode rank
    bootstrap_port: int
    bootstrap_token_file: str | None  # None: whoever reaches the bootstrap server may call it
    page_size: int
    dtype: str
    device: str
    max_total_tokens: int | None  # None: as many as fit `kv_pool_mb`
    kv_pool_mb: int
    max_running_requests: int
    chunked_prefill_size: int
    context_length: int | None  # None: what the model's config says
    num_threads: int | None  # None: torch decides
    random_seed: int
    bootstrap_timeout_s: float  # both sides: until the other side has announced itself and its pages
    waiting_timeout_s: float  # decode: from pages announced to the last byte
    heartbeat_interval_s: float
    shutdown_grace_s: float  # for running requests, after the first signal to stop
    verify_kv: bool
    log_level: str
    pad_kv_heads: int | None  # heads of zeros up to this many; None: as the model has them
    tp_size: int
    attn_dp_size: int
    ep_size: int
    nnodes: int
    node_rank: int
    dist_init_addr: str | None  # HOST:PORT where ranks meet; None: a port of the leader's choice
    tp_rank: int | None = None  # None: the first rank of this node, which starts the others

    @property
    def num_local_ranks(self) -> int:
        return self.tp_size // self.nnodes

    @property
    def meeting_address(self) -> tuple[str, int]:
        """Where the ranks meet, once it is known."""
        assert self.dist_init_addr is not None, "several ranks have it from the command line or the leader"
        host, _, port = self.dist_init_addr.rpartition(":")
        return host.strip("[]"), int(port)

    @property
    def own_rank(self) -> int:
        return self.node_rank * self.num_local_ranks if self.tp_rank is None else self.tp_rank


def parse_settings(argv: Sequence[str] | None = None) -> EngineSettings:
    """Read argv into settings; argparse exits with code 2 on a flag it does not know."""
    parser = argparse.ArgumentParser(
        prog="python -m runtime.engine",
        description="A small prefill/decode engine that speaks the PD interface of SGLang.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--model-path", required=True, help="Hugging Face folder, GGUF file, or `builtin:NAME`")
    add("--served-model-name", help="name in the API (default: the model path)")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=30000)
    add("--disaggregation-mode", dest="mode", type=Mode, choices=list(Mode), default=Mode.UNIFIED)
    add("--disaggregation-transfer-backend", dest="transfer_backend", default="tcp")
    add("--transfer-threads", type=_positive, help="of a rank's sends (default: by the number of CPUs)")
    add("--transfer-queues", type=_positive, default=4, help="queues that receivers are dealt out to")
    add("--disaggregation-ib-device", dest="ib_devices", type=_names, default=(), metavar="NAME,NAME")
    add("--nixl-plugin", default="UCX", help="what NIXL moves bytes with")
    add("--ascend-protocol", default="sdma", help="what memfabric moves bytes with")
    add("--staging", type=_switch, default=True, metavar="on|off", help="between unequal attention splits")
    add("--staging-block-mb", type=_positive, help="of one staged block, MiB (default: one prefill chunk)")
    add("--staging-pool-mb", type=_positive, default=256, help="of a decode rank's staging pool, MiB")
    add("--disaggregation-bootstrap-port", dest="bootstrap_port", type=int, default=8998)
    add("--bootstrap-token-file", metavar="FILE", help="what callers of the bootstrap server must know")
    add("--page-size", type=_positive, default=16, help="token slots per KV page")
    add("--dtype", choices=["float32", "bfloat16", "float16"], default="float32")
    add("--device", default="cpu")
    add(
        "--max-total-tokens",
        type=_positive,
        help="token slots in the KV pool (default: what --kv-pool-mb holds)",
    )
    add("--kv-pool-mb", type=_positive, default=1024, help="memory for the KV pool, MiB")
    add("--max-running-requests", type=_positive, default=32)
    add("--chunked-prefill-size", type=_positive, default=512, help="prompt tokens computed in one step")
    add("--context-length", type=_positive, help="longest prompt plus answer (default: the model's own)")
    add("--num-threads", type=_positive, help="threads of one tensor operation")
    add("--random-seed", type=int, default=0)
    add("--bootstrap-timeout", dest="bootstrap_timeout_s", type=float, default=300.0, metavar="SECONDS")
    add("--waiting-timeout", dest="waiting_timeout_s", type=float, default=300.0, metavar="SECONDS")
    add("--heartbeat-interval", dest="heartbeat_interval_s", type=float, default=5.0, metavar="SECONDS")
    add("--shutdown-grace", dest="shutdown_grace_s", type=float, default=5.0, metavar="SECONDS")
    add("--verify-kv", action="store_true", help="checksum the KV of every request on both sides")
    add(
        "--log-level",
        choices=["debug", "info", "warning", "error"],
        default=os.environ.get("PDCTL_LOG_LEVEL", "info"),
    )
    _add_parallel_flags(parser)
    values = vars(parser.parse_args(argv))
    fault = _parallel_fault(**{name: values[name] for name in _PARALLEL})
    if fault is not None:
        parser.error(fault)
    values["served_model_name"] = values["served_model_name"] or values["model_path"]
    return EngineSettings(**values)


_PARALLEL = ("tp_size", "attn_dp_size", "ep_size", "nnodes", "node_rank", "dist_init_addr")


def _add_parallel_flags(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--tp-size", "--tp", type=_positive, default=1, help="processes that share the model")
    add(
        "--attn-dp-size",
        type=_positive,
        default=1,
        help="groups of ranks with a KV pool and requests of their own; each shares the heads of attention",
    )
    add(
        "--pad-kv-heads",
        type=_positive,
        help="add KV heads of zeros up to this many, for more ranks to share; alike on both sides",
    )
    add("--ep-size", type=_positive, default=1, help="groups of ranks that experts are dealt out to")
    add("--nnodes", type=_positive, default=1, help="nodes that the ranks are spread over")
    add("--node-rank", type=int, default=0)
    add("--dist-init-addr", type=_address, metavar="HOST:PORT", help="where ranks of several nodes meet")


def _parallel_fault(
    *, tp_size: int, attn_dp_size: int, ep_size: int, nnodes: int, node_rank: int, dist_init_addr: str | None
) -> str | None:
    for flag, number in (("attn-dp-size", attn_dp_size), ("ep-size", ep_size), ("nnodes", nnodes)):
        if tp_size % number:
            return f"--{flag} must divide --tp-size, found {number} and {tp_size}"
    if not 0 <= node_rank < nnodes:
        return f"--node-rank must be from 0 to {nnodes - 1}, found {node_rank}"
    if nnodes > 1 and dist_init_addr is None:
        return "--nnodes needs --dist-init-addr, where the ranks meet"
    return None


def _address(text: str) -> str:
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"must be HOST:PORT, found `{text}`")
    return text


def _names(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))


def _switch(text: str) -> bool:
    if text not in ("on", "off"):
        raise argparse.ArgumentTypeError(f"must be `on` or `off`, found `{text}`")
    return text == "on"


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, found {number}")
    return number
