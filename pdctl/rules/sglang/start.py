"""What SGLang refuses at start, as far as the document tells: no GPU needs to be held to hear of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.reading import DCP_FLAGS, a2a_backend, first_stated, number, switch
from pdctl.topology.model import Role, Topology

# Names of models may be addresses of object stores, where SGLang allows the colon.
_OBJECT_STORES = ("s3://", "gs://", "az://")

# Switches of features that SGLang refuses in prefill and decode mode (arg_groups/validation_hook.py and
# pd_disaggregation_hook.py).
_REFUSED_SWITCHES = {
    "enable-pdmux": "PD multiplexing is the other way to split the phases",
    "enable-response-store": "responses can't be stored in disaggregated mode",
    "enable-watermark": "watermarks can't be written in disaggregated mode",
    "encoder-only": "an encoder is a server of its own",
}


def _replicas_have_no_attention_dp(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/parallel_hook.py, handle_data_parallelism, and check_server_args."""
    for role in topology.roles:
        parallel, path = role.parallel, (role.name, "parallel", "dp")
        if parallel.dp > 1 and parallel.attn_dp > 1:
            yield at_value(
                topology,
                path,
                "PD284",
                f"`dp: {parallel.dp}` can't be combined with `attn_dp: {parallel.attn_dp}`",
                notes=("`dp` is whole copies of the model, `attn_dp` shards of the batch inside one",),
                help=f"leave `dp` out, and set `{role.name}.instances` for more copies",
            )
        if parallel.dp > 1 and (role.nodes or 1) > 1:
            yield at_value(
                topology,
                path,
                "PD284",
                f"`dp: {parallel.dp}` copies can't span {role.nodes} nodes",
                notes=("SGLang runs plain copies on one node only",),
                help=f"set `{role.name}.instances`, or `attn_dp` in place of `dp`",
            )


def _served_name_has_no_colon(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/validation_hook.py, check_server_args."""
    name = topology.model.name
    if ":" in name and not name.startswith(_OBJECT_STORES):
        key = "path" if topology.model.served_name is None else "served_name"
        yield at_value(
            topology,
            ("model", key),
            "PD285",
            f"the served name `{name}` has a colon, which names a LoRA adapter",
            notes=("SGLang refuses to start",),
            help="set `model.served_name` to a name without one",
        )


def _prefill_moves_real_kv(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/pd_disaggregation_hook.py."""
    if topology.transfer.backend == "fake":
        yield at_value(
            topology,
            ("transfer", "backend"),
            "PD287",
            "the backend `fake` moves no KV, and prefill refuses it",
            help="choose a real one: `mooncake_tcp` needs no special network",
        )


def _roles_that_switch(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/pd_disaggregation_hook.py. srt/managers/disagg_service.py then starts a bootstrap
    server on decode instances too."""
    for role in topology.roles:
        stated = switch(topology, role, "enable-pd-role-switch")
        if stated is None:
            continue
        for problem in _unswitchable(topology, role):
            yield at_value(
                topology,
                stated.path,
                "PD288",
                f"an instance of `{role.name}` can't switch its role with {problem}",
                notes=("SGLang refuses to start, or every instance claims one port",),
                help="remove the flag",
            )


def _unswitchable(topology: Topology, role: Role) -> Iterator[str]:
    parallel = role.parallel
    if parallel.ep > 1:
        yield f"`ep: {parallel.ep}`"
    if a2a_backend(topology, role) != "none":
        yield f"the all-to-all backend `{a2a_backend(topology, role)}`"
    if parallel.pp > 1:
        yield f"`pp: {parallel.pp}`"
    if first_stated(topology, role, "speculative-algorithm", "speculative-algo") is not None:
        yield "speculative decoding"
    if (number(first_stated(topology, role, *DCP_FLAGS)) or 1) > 1:
        yield "decode context parallelism"
    if parallel.attn_dp > 1 and switch(topology, role, "enable-dp-attention-local-control-broadcast"):
        yield "control broadcast inside attention DP groups"
    nodes = topology.cluster.nodes
    num_nodes = nodes if isinstance(nodes, int) else len(nodes)
    if role.name == "decode" and topology.prefill.instances + role.instances > num_nodes:
        yield "others on its node: each would need a bootstrap port of its own, and decode has none"


def _features_work_in_both_phases(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        for flag, why in _REFUSED_SWITCHES.items():
            stated = switch(topology, role, flag)
            if stated is not None:
                yield at_value(
                    topology,
                    stated.path,
                    "PD289",
                    f"SGLang refuses `{flag}` on prefill and decode servers",
                    notes=(why,),
                    help="remove the flag",
                )


def _lm_head_follows_attention(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/overrides.py, _data_parallelism_defaults: reset without a word."""
    for role in topology.roles:
        stated = switch(topology, role, "enable-dp-lm-head")
        if stated is not None and role.parallel.attn_dp == 1:
            yield at_value(
                topology,
                stated.path,
                "PD280",
                f"`enable-dp-lm-head` does nothing on `{role.name}`, which has no attention DP",
                severity=Severity.WARNING,
                help=f"set `{role.name}.parallel.attn_dp`, or remove the flag",
            )


RULES = (
    Rule(code="PD280", check=_lm_head_follows_attention),
    Rule(code="PD284", check=_replicas_have_no_attention_dp),
    Rule(code="PD285", check=_served_name_has_no_colon),
    Rule(code="PD287", check=_prefill_moves_real_kv),
    Rule(code="PD288", check=_roles_that_switch),
    Rule(code="PD289", check=_features_work_in_both_phases),
)
