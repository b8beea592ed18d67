"""Page sizes that SGLang chooses by itself, and what must be a multiple of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.pairing import page_sizes_agree
from pdctl.rules.sglang.reading import first_stated, number, word
from pdctl.topology.model import Role, Topology
from pdctl.topology.source import DocumentPath

# Attention backends that put another page size in place of one they can't use: what they can use, and what
# they take. sglang 0.5.9 srt/server_args.py and 0.5.23 srt/arg_groups/overrides.py agree in these.
_REPLACING: Mapping[str, tuple[tuple[int, ...], int]] = {
    "flashmla": ((64,), 64),
    "cutlass_mla": ((128,), 128),
    "trtllm_mla": ((32, 64), 64),
    "cutedsl_mla": ((32, 64), 64),
    "tokenspeed_mla": ((32, 64), 64),
    "trtllm_mha": ((16, 32, 64, 128), 64),
    "hpc_ops": ((64,), 64),
}

# `chunked-prefill-size` where nothing is stated, by the memory of the GPU (srt/server_args.py of 0.5.9,
# srt/arg_groups/memory_hook.py of 0.5.23).
_DEFAULT_CHUNKS = (2048, 4096, 8192, 16384)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageSize:
    """What a role pages with, as far as the document tells."""

    tokens: int
    path: DocumentPath  # of the flag that decides
    backend: str | None = None  # that put it in place of what was stated, or of the default


def page_size(topology: Topology, role: Role) -> PageSize | None:
    """None where neither the document nor an attention backend decides."""
    stated = stated_arg(topology, role, "page-size")
    tokens = number(stated)
    attention = first_stated(topology, role, "decode-attention-backend", "attention-backend")
    backend = word(attention)
    if attention is not None and backend is not None and backend in _REPLACING:
        usable, taken = _REPLACING[backend]
        if tokens not in usable:
            return PageSize(tokens=taken, path=attention.path, backend=backend)
    if stated is None or tokens is None:
        return None
    return PageSize(tokens=tokens, path=stated.path)


def _page_sizes_agree(topology: Topology) -> Iterable[Diagnostic]:
    """Where an attention backend decides for a side, PD312 compares."""
    if any(size is not None and size.backend for size in _page_sizes(topology)):
        return ()
    return page_sizes_agree(topology)


def _page_sizes(topology: Topology) -> tuple[PageSize | None, ...]:
    return tuple(page_size(topology, role) for role in topology.roles)


def _backends_leave_them_equal(topology: Topology) -> Iterable[Diagnostic]:
    """What the document states alone is compared by PD302."""
    prefill, decode = _page_sizes(topology)
    replaced = next((each for each in (decode, prefill) if each is not None and each.backend), None)
    if replaced is None or (prefill is not None and decode is not None and prefill.tokens == decode.tokens):
        return
    other = prefill if replaced is decode else decode
    other_role = "prefill" if replaced is decode else "decode"
    takes = "what the engine chooses" if other is None else str(other.tokens)
    yield at_value(
        topology,
        replaced.path,
        "PD312",
        f"the attention backend `{replaced.backend}` pages with {replaced.tokens} tokens, "
        f"{other_role} with {takes}",
        severity=Severity.WARNING if other is None else Severity.ERROR,
        notes=("SGLang replaces the page size with a warning in its log; the first request then aborts",),
        help=f"set `page-size: {replaced.tokens}` under `defaults.args`",
    )


def _hybrid_models_pin_it(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/model_overrides/qwen3_5.py: the choice depends on the radix cache, which decode
    never has. A stated attention backend leaves nothing to choose."""
    if topology.facts.attention != "hybrid":
        return
    free = [
        role
        for role in topology.roles
        if page_size(topology, role) is None and stated_arg(topology, role, "attention-backend") is None
    ]
    if not free:
        return
    yield at_value(
        topology,
        ("model", "path"),
        "PD311",
        "the page size of this hybrid model is left to the engine, which may choose another on each role",
        severity=Severity.WARNING,
        notes=("it depends on the GPU, the attention backend and the radix cache, which decode doesn't use",),
        help="set `page-size` under `defaults.args`, such as 64",
    )


def _chunks_are_whole_pages(topology: Topology) -> Iterable[Diagnostic]:
    """sglang check_server_args, after handle_data_parallelism has divided the chunk."""
    role = topology.prefill
    stated, pages = stated_arg(topology, role, "chunked-prefill-size"), page_size(topology, role)
    chunk = number(stated)
    if pages is None or pages.tokens < 1:
        return
    if stated is None:
        yield from _default_chunks(topology, role, pages)
        return
    if chunk is None or chunk <= 0:
        return
    share = chunk // role.parallel.attn_dp
    if share % pages.tokens:
        divided = f" / `attn_dp: {role.parallel.attn_dp}` = {share}" if role.parallel.attn_dp > 1 else ""
        yield at_value(
            topology,
            stated.path,
            "PD278",
            f"a prefill chunk of {chunk}{divided} tokens is no multiple of the page size {pages.tokens}",
            notes=("SGLang divides the chunk by the attention DP width first, and then refuses to start",),
            help=f"set a multiple of {pages.tokens * role.parallel.attn_dp}, or -1 for no chunks",
        )


def _default_chunks(topology: Topology, role: Role, pages: PageSize) -> Iterable[Diagnostic]:
    """What is chosen grows with the memory of the GPU; some pages fit into none of it."""
    width = role.parallel.attn_dp
    if any(chunk // width % pages.tokens == 0 for chunk in _DEFAULT_CHUNKS):
        return
    divided = f", divided by `attn_dp: {width}`," if width > 1 else ""
    yield at_value(
        topology,
        pages.path,
        "PD278",
        f"no chunk that SGLang chooses{divided} is a multiple of the page size {pages.tokens}",
        notes=("prefill refuses to start",),
        help=f"set `prefill.args.chunked-prefill-size` to a multiple of {pages.tokens * width}, or to -1",
    )


def _pages_hold_tokens(topology: Topology) -> Iterable[Diagnostic]:
    stated = (stated_arg(topology, role, "page-size") for role in topology.roles)
    found = {each.path: number(each) for each in stated if each is not None}
    for path, tokens in found.items():
        if tokens is not None and tokens < 1:
            yield at_value(
                topology,
                path,
                "PD335",
                f"a page of {tokens} tokens holds nothing",
                notes=("SGLang divides by it",),
                help="leave it out, or set 1 or more",
            )


RULES = (
    Rule(code="PD302", check=_page_sizes_agree),
    Rule(code="PD335", check=_pages_hold_tokens),
    Rule(code="PD278", check=_chunks_are_whole_pages),
    Rule(code="PD311", check=_hybrid_models_pin_it),
    Rule(code="PD312", check=_backends_leave_them_equal),
)
