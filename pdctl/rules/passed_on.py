"""Flags that the document passes on to a program: spelled right, and not those that pdctl derives."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic
from pdctl.program import Rule
from pdctl.rules.blocks import ArgsBlock, blocks, normal
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath, dotted

# The field of the document that says what an owned flag would; the others follow from the plan.
_ENGINE_FIELDS: Mapping[str, str] = {
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "tp-size": "parallel.tp",
    "dp-size": "parallel.attn_dp",
    "attn-dp-size": "parallel.attn_dp",
    "enable-dp-attention": "parallel.attn_dp",
    "attn-cp-size": "parallel.attn_cp",
    "ep-size": "parallel.ep",
    "pp-size": "parallel.pp",
    "port": "port",
    "disaggregation-bootstrap-port": "prefill.bootstrap_port",
    "disaggregation-transfer-backend": "transfer.backend",
    "disaggregation-ib-device": "transfer.ib_devices",
    "disaggregation-enable-kv-checksum": "transfer.verify_kv",
    "bootstrap-timeout": "transfer.bootstrap_timeout_s",
    "waiting-timeout": "transfer.waiting_timeout_s",
    "heartbeat-interval": "transfer.heartbeat_interval_s",
    "verify-kv": "transfer.verify_kv",
}
_ROUTER_FIELDS: Mapping[str, str] = {
    "host": "router.host",
    "port": "router.port",
    "policy": "router.policy",
    "prefill-policy": "router.prefill_policy",
    "decode-policy": "router.decode_policy",
    "api-key": "router.api_key_env",
    "prometheus-port": "router.metrics_port",
}


def _owned_flags_are_left_alone(topology: Topology) -> Iterable[Diagnostic]:
    for block in blocks(topology):
        for key in block.args:
            owned = block.owned(key)
            if owned is not None:
                yield Diagnostic(
                    code="PD220",
                    message=f"pdctl derives `{key}` itself",
                    span=topology.source.key(*block.path, key),
                    path=dotted((*block.path, key)),
                    notes=()
                    if owned == normal(key)
                    else (f"to {block.label} it is another word for `{owned}`",),
                    help=_instead(block, owned),
                )


def _instead(block: ArgsBlock, flag: str) -> str:
    if flag == "config":
        return f"remove it, and write the flags of that file under `{dotted(block.path)}`"
    fields = _ROUTER_FIELDS if block.is_router else _ENGINE_FIELDS
    known = block.find(flag)
    spellings = (flag,) if known is None else (flag, *known.spellings)
    place = next((fields[each] for each in spellings if each in fields), None)
    if place is None:
        return "remove it: it follows from the rest of the topology"
    if place in ("port",) or place.startswith("parallel."):
        owner = block.path[0] if block.path[0] in ("prefill", "decode") else "prefill` and `decode"
        return f"remove it, and set `{place}` under `{owner}`"
    return f"remove it, and set `{place}`"


def _flags_are_spelled_plainly(topology: Topology) -> Iterable[Diagnostic]:
    for block in blocks(topology):
        for key in block.args:
            right = normal(key)
            if key == right or block.owns(key):
                continue
            yield Diagnostic(
                code="PD221",
                message=f"`{key}` is not how `args` spells a flag",
                span=topology.source.key(*block.path, key),
                path=dotted((*block.path, key)),
                notes=("`args` has flags without leading dashes, with `-` between words",),
                help=f"write `{right}`",
            )


def passed_on(topology: Topology) -> tuple[tuple[DocumentPath, Mapping[str, object]], ...]:
    """Every mapping of flags or variables in the document, with its path."""
    nodes = topology.cluster.nodes
    hosts = () if isinstance(nodes, int) else nodes
    return (
        *((block.path, block.args) for block in blocks(topology)),
        (("defaults", "env"), topology.defaults.env),
        *(((role.name, "env"), role.env) for role in topology.roles),
        (("router", "env"), topology.router.env),
        *((("cluster", "nodes", index, "env"), host.env) for index, host in enumerate(hosts)),
    )


def _no_value_holds_a_nul(topology: Topology) -> Iterable[Diagnostic]:
    """The kernel ends an argument and a variable at the first NUL."""
    for path, values in passed_on(topology):
        for key, value in values.items():
            if isinstance(value, str) and "\0" in value:
                yield Diagnostic(
                    code="PD222",
                    message=f"the value of `{key}` holds a NUL character",
                    span=topology.source.value(*path, key),
                    path=dotted((*path, key)),
                    notes=("no program can be given one, in its arguments or its environment",),
                    help="remove it",
                )


RULES = (
    Rule(code="PD220", check=_owned_flags_are_left_alone),
    Rule(code="PD221", check=_flags_are_spelled_plainly),
    Rule(code="PD222", check=_no_value_holds_a_nul),
)
