"""The most tokens that one rank may dispatch to experts in a step of decode, over DeepEP."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, stated_arg
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import a2a_backend, first_stated, number, word
from pdctl.topology.model import Role, Topology

VARIABLE = "SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK"
DEFAULT_LIMIT = 128  # sglang srt/environ.py
HIGHEST_LIMIT = 1024  # asserted by srt/layers/moe/token_dispatcher/deepep.py, 0.5.9 to 0.5.23

_GRAPH_FLAGS = ("cuda-graph-bs-decode", "cuda-graph-max-bs-decode", "cuda-graph-bs", "cuda-graph-max-bs")


def _graphs_fit_the_limit(topology: Topology) -> Iterable[Diagnostic]:
    role = topology.decode
    mode = word(stated_arg(topology, role, "deepep-mode"))
    if a2a_backend(topology, role) != "deepep" or mode == "normal":
        return
    for variables in process_variables(topology, role, VARIABLE):
        yield from _graphs_fit(topology, role, variables.get(VARIABLE))


def _graphs_fit(topology: Topology, role: Role, limit: Stated | None) -> Iterable[Diagnostic]:
    num_limit = DEFAULT_LIMIT if limit is None else number(limit)
    graph = first_stated(topology, role, *_GRAPH_FLAGS)
    num_requests = _largest(graph)
    if num_limit is None:
        return
    if limit is not None and num_limit > HIGHEST_LIMIT:
        yield at_value(
            topology,
            limit.path,
            "PD273",
            f"DeepEP's dispatch limit is {num_limit}, SGLang asserts {HIGHEST_LIMIT} at most",
            help=f"set {HIGHEST_LIMIT} or less, and lower the largest CUDA graph of decode to match",
        )
    num_tokens = 0
    if graph is not None and num_requests is not None:
        num_tokens = _per_rank(topology, num_requests) * _drafts(topology, role)
        if num_tokens > num_limit or (num_tokens == num_limit and _tunes_itself(topology, role)):
            yield _overflow(topology, limit or graph, num_tokens, num_limit)
    if num_tokens <= num_limit:
        yield from _batches_fit(topology, role, num_limit)


def _overflow(topology: Topology, place: Stated, num_tokens: int, num_limit: int) -> Diagnostic:
    is_full = num_tokens == num_limit
    wanted = num_tokens + 1 if is_full else num_tokens
    return at_value(
        topology,
        place.path,
        "PD273",
        f"decode's largest CUDA graph dispatches {num_tokens} tokens per rank, DeepEP's limit is {num_limit}",
        # Published recipes are that full and work; later engines tune FP4 kernels with a larger batch.
        severity=Severity.WARNING if is_full else Severity.ERROR,
        notes=(
            "some engine versions warm up with more than the largest graph"
            if is_full
            else "decode ends with an assertion in its warm-up",
        ),
        help=f'set `{VARIABLE}: "{wanted}"` or more, or lower the largest graph'
        if wanted <= HIGHEST_LIMIT
        else "lower the largest graph",
    )


def _batches_fit(topology: Topology, role: Role, num_limit: int) -> Iterable[Diagnostic]:
    """Batches larger than the largest graph run without one, and reach the limit under load."""
    running = stated_arg(topology, role, "max-running-requests")
    num_running = number(running)
    if running is None or num_running is None:
        return
    num_tokens = max(1, num_running // role.parallel.attn_dp) * _drafts(topology, role)
    if num_tokens > num_limit:
        yield at_value(
            topology,
            running.path,
            "PD273",
            f"decode may dispatch {num_tokens} tokens per rank, DeepEP's limit is {num_limit}",
            severity=Severity.WARNING,
            notes=("a batch that large ends the instance with an assertion",),
            help=f"set `{VARIABLE}` to {num_tokens}"
            if num_tokens <= HIGHEST_LIMIT
            else "lower `max-running-requests`",
        )


def _tunes_itself(topology: Topology, role: Role) -> bool:
    """FP4 experts are tuned in warm-up (NVIDIA/srt-slurm issues 42 and 44)."""
    runner = word(stated_arg(topology, role, "moe-runner-backend")) or ""
    quantization = word(stated_arg(topology, role, "quantization")) or ""
    return runner.startswith("flashinfer") or "fp4" in quantization


def _per_rank(topology: Topology, num_requests: int) -> int:
    """A graph holds no more than the requests that a rank may run (moe_hook, tokens of a decode graph)."""
    running = number(stated_arg(topology, topology.decode, "max-running-requests"))
    if running is None:
        return num_requests
    return min(num_requests, max(1, running // topology.decode.parallel.attn_dp))


def _drafts(topology: Topology, role: Role) -> int:
    if first_stated(topology, role, "speculative-algorithm", "speculative-algo") is None:
        return 1
    return number(stated_arg(topology, role, "speculative-num-draft-tokens")) or 1


def _largest(stated: Stated | None) -> int | None:
    """Of a list of graph sizes, or the one number that was stated."""
    if stated is not None and isinstance(stated.value, tuple):
        sizes = [size for size in stated.value if isinstance(size, int)]
        return max(sizes, default=None)
    return number(stated)


RULES = (Rule(code="PD273", check=_graphs_fit_the_limit),)
