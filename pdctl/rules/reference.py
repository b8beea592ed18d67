"""What the reference engine can't do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules import reference_transfer
from pdctl.rules.base import at_value, stated_arg
from pdctl.topology.model import Role, Topology


def _widths_are_served(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        parallel = role.parallel
        for name, width in {"pp": parallel.pp, "attn_cp": parallel.attn_cp, "dp": parallel.dp}.items():
            if width != 1:
                yield at_value(
                    topology,
                    (role.name, "parallel", name),
                    "PD210",
                    f"the reference engine doesn't split a model that way, found `{name}: {width}`",
                    notes=("its ranks share heads, columns, experts and requests: `tp`, `ep`, `attn_dp`",),
                    help=f"set `{name}: 1`, and raise `tp` or `{role.name}.instances`",
                )


def _ranks_share_evenly(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        for name, fault in _uneven(topology, role):
            yield at_value(
                topology,
                (role.name, "parallel", name),
                "PD380",
                fault,
                notes=("the ranks of the reference engine stop at start when they can't share a model",),
                help="choose widths of which one divides the other, or `pad-kv-heads` in `defaults.args`",
            )


def _uneven(topology: Topology, role: Role) -> Iterator[tuple[str, str]]:
    """Widths by their key, and what they can't share evenly."""
    facts, parallel = topology.facts, role.parallel
    ranks, num_heads, num_kv_heads = parallel.attn_tp, facts.num_heads, facts.num_kv_heads
    padded = stated_arg(topology, role, "pad-kv-heads")
    if padded is not None and isinstance(padded.value, int) and num_heads and num_kv_heads:
        num_heads, num_kv_heads = num_heads // num_kv_heads * padded.value, padded.value
    if num_heads is not None and num_heads % ranks:
        yield "tp", f"{num_heads} query heads can't be shared evenly by {ranks} attention ranks"
    elif num_kv_heads is not None and not facts.is_mla and num_kv_heads % ranks and ranks % num_kv_heads:
        yield "tp", f"{num_kv_heads} KV heads can't be spread evenly over {ranks} attention ranks"
    if parallel.ep < parallel.tp and parallel.tp % parallel.ep:
        yield "ep", f"`ep: {parallel.ep}` doesn't divide `tp: {parallel.tp}`"


def _model_is_a_path(topology: Topology) -> Iterable[Diagnostic]:
    path = topology.model.path
    if topology.model.is_builtin or path.startswith("/"):
        return
    yield Diagnostic(
        code="PD213",
        message=f"the reference engine reads models from disk, found `{path}`",
        span=topology.source.value("model", "path"),
        path="model.path",
        notes=("it fetches nothing from a hub",),
        help=f"write `./{path}` if it lies beside this file, else a path from `/`, or a `builtin:` name",
    )


RULES = (
    Rule(code="PD210", check=_widths_are_served),
    Rule(code="PD213", check=_model_is_a_path),
    Rule(code="PD380", check=_ranks_share_evenly),
    *reference_transfer.RULES,
)
