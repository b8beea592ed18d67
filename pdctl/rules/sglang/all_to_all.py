"""What SGLang's all-to-all backends ask of widths and of the kernels that compute experts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.rules.sglang.reading import a2a_backend, is_at_most, switch
from pdctl.topology.model import Role, Topology

_LAST_FLASHINFER_UNCHECKED = "0.5.12.post1"

# Every runner that some release from 0.5.13 to 0.5.23 takes with the backend.
_RUNNERS: Mapping[str, tuple[str, ...]] = {
    "flashinfer": (
        "flashinfer_cutlass",
        "flashinfer_cutedsl",
        "flashinfer_trtllm",
        "flashinfer_trtllm_routed",
        "deep_gemm",
    ),
    "pplx": ("deep_gemm",),
}


def _backends_have_their_widths(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/moe_hook.py, handle_a2a_moe."""
    for role in topology.roles:
        problem = _width_problem(topology, role, a2a_backend(topology, role))
        stated = stated_arg(topology, role, "moe-a2a-backend")
        if problem is not None and stated is not None:
            yield at_value(
                topology,
                stated.path,
                "PD277",
                f"the all-to-all backend `{stated.value}` {problem}",
                notes=(f"`{role.name}` has `tp: {role.parallel.tp}`, `attn_dp: {role.parallel.attn_dp}`",),
                help=f"change `{role.name}.parallel`, or use another backend",
            )


def _width_problem(topology: Topology, role: Role, backend: str) -> str | None:
    parallel = role.parallel
    wants_equal = backend == "flashinfer_megamoe" or (
        backend == "flashinfer"
        and not is_at_most(topology, _LAST_FLASHINFER_UNCHECKED)
        # Muse Spark's prefill may shard otherwise, with this flag (`_flashinfer_a2a_topology_is_supported`).
        and switch(topology, role, "enable-layernorm-sp") is None
    )
    if wants_equal and parallel.attn_dp != parallel.tp:
        return "needs `attn_dp` equal to `tp`"
    if backend == "pplx" and parallel.attn_dp < 2:
        return "needs `attn_dp` of 2 or more"
    return None


def _stated_ep_is_used(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        backend, ep = a2a_backend(topology, role), role.parallel.ep
        if backend != "none" and ep not in (1, role.parallel.tp):
            yield at_value(
                topology,
                (role.name, "parallel", "ep"),
                "PD282",
                f"the engine takes `ep: {role.parallel.tp}` in place of {ep}",
                severity=Severity.WARNING,
                notes=(f"the all-to-all backend `{backend}` spreads experts over the whole `tp`",),
                help=f"set `ep: {role.parallel.tp}`, or leave it out",
            )


def _dispatch_has_a_runner(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/moe_hook.py, handle_a2a_moe; an unstated runner follows from the device."""
    for role in topology.roles:
        backend, stated = a2a_backend(topology, role), stated_arg(topology, role, "moe-runner-backend")
        runners = _RUNNERS.get(backend)
        if stated is None or runners is None or stated.value in ("auto", *runners):
            continue
        if is_at_most(topology, _LAST_FLASHINFER_UNCHECKED):
            continue
        yield at_value(
            topology,
            stated.path,
            "PD245",
            f"the all-to-all backend `{backend}` can't feed experts that `{stated.value}` computes",
            notes=("SGLang refuses to start",),
            help=f"use one of {', '.join(f'`{each}`' for each in runners)}",
        )


RULES = (
    Rule(code="PD245", check=_dispatch_has_a_runner),
    Rule(code="PD277", check=_backends_have_their_widths),
    Rule(code="PD282", check=_stated_ep_is_used),
)
