"""Flags that the document passes on to a program: spelled right, and not those that pdctl derives."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from pdctl import plugins
from pdctl.diagnostics import Diagnostic
from pdctl.program import Program, Rule
from pdctl.topology.model import Args, Topology
from pdctl.topology.source import DocumentPath, dotted

# The field of the document that says what an owned flag would; the others follow from the plan.
_ENGINE_FIELDS: Mapping[str, str] = {
    "model-path": "model.path",
    "served-model-name": "model.served_name",
    "tp-size": "parallel.tp",
    "dp-size": "parallel.attn_dp",
    "ep-size": "parallel.ep",
    "pp-size": "parallel.pp",
    "port": "port",
    "disaggregation-bootstrap-port": "prefill.bootstrap_port",
    "disaggregation-transfer-backend": "transfer.backend",
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
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Block:
    """One `args` mapping of the document, and the program that gets it."""

    path: DocumentPath
    args: Args
    program: Program | None  # None: its kind doesn't exist, which another rule says
    fields: Mapping[str, str]


def _blocks(topology: Topology) -> Iterator[_Block]:
    engine = plugins.program("engines", topology.engine.kind)
    router = plugins.program("routers", topology.router.kind)
    yield _Block(
        path=("defaults", "args"), args=topology.defaults.args, program=engine, fields=_ENGINE_FIELDS
    )
    for role in topology.roles:
        yield _Block(path=(role.name, "args"), args=role.args, program=engine, fields=_ENGINE_FIELDS)
    yield _Block(path=("router", "args"), args=topology.router.args, program=router, fields=_ROUTER_FIELDS)


def _owned_flags_are_left_alone(topology: Topology) -> Iterable[Diagnostic]:
    for block in _blocks(topology):
        if block.program is None:
            continue
        for flag in block.args:
            if _normal(flag) in block.program.owned_flags:
                yield Diagnostic(
                    code="PD220",
                    message=f"pdctl derives `{flag}` itself",
                    span=topology.source.key(*block.path, flag),
                    path=dotted((*block.path, flag)),
                    help=_instead(block, _normal(flag)),
                )


def _instead(block: _Block, flag: str) -> str:
    place = block.fields.get(flag)
    if place is None:
        return "remove it: it follows from the rest of the topology"
    if place in ("port",) or place.startswith("parallel."):
        owner = block.path[0] if block.path[0] in ("prefill", "decode") else "prefill` and `decode"
        return f"remove it, and set `{place}` under `{owner}`"
    return f"remove it, and set `{place}`"


def _flags_are_spelled_plainly(topology: Topology) -> Iterable[Diagnostic]:
    for block in _blocks(topology):
        owned: frozenset[str] = block.program.owned_flags if block.program is not None else frozenset()
        for flag in block.args:
            right = _normal(flag)
            if flag == right or right in owned:
                continue
            yield Diagnostic(
                code="PD221",
                message=f"`{flag}` is not how `args` spells a flag",
                span=topology.source.key(*block.path, flag),
                path=dotted((*block.path, flag)),
                notes=("`args` has flags without leading dashes, with `-` between words",),
                help=f"write `{right}`",
            )


def _normal(flag: str) -> str:
    return flag.lstrip("-").replace("_", "-").partition("=")[0]


RULES = (
    Rule(code="PD220", check=_owned_flags_are_left_alone),
    Rule(code="PD221", check=_flags_are_spelled_plainly),
)
