"""Time-outs of the KV transfer: they end, their reader gets them, and the router outlasts them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.sglang.processes import process_variables
from pdctl.rules.sglang.reading import number
from pdctl.topology.model import Role, RoleName, Topology
from pdctl.topology.source import DocumentPath

_ENDLESS_S = 1_000_000  # eleven days; published recipes go to 100000
_TIMEOUT_VARIABLES = (
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT",
    "SGLANG_DISAGGREGATION_WAITING_TIMEOUT",
)


_WAITING = "SGLANG_DISAGGREGATION_WAITING_TIMEOUT"
_DEFAULT_WAITING_S = 300  # srt/environ.py, in all releases

# Variables that one role alone reads: sglang srt/disaggregation/common/conn.py, CommonKVManager, by its mode.
_READERS: Mapping[str, RoleName] = {
    "SGLANG_DISAGGREGATION_BOOTSTRAP_TIMEOUT": "prefill",
    "SGLANG_DISAGGREGATION_QUEUE_SIZE": "prefill",
    _WAITING: "decode",
    "SGLANG_DISAGGREGATION_HEARTBEAT_INTERVAL": "decode",
    "SGLANG_DISAGGREGATION_HEARTBEAT_MAX_FAILURE": "decode",
    "SGLANG_DISAGG_STAGING_POOL_SIZE_MB": "decode",
}


def _time_outs_end(topology: Topology) -> Iterable[Diagnostic]:
    for path, seconds in _time_outs(topology).items():
        if seconds >= _ENDLESS_S:
            yield at_value(
                topology,
                path,
                "PD324",
                f"a time-out of {seconds} seconds never ends a transfer that is stuck",
                severity=Severity.WARNING,
                notes=("requests of a peer that died hold KV pages until then",),
                help="set what the longest prefill and its queue may take, in minutes",
            )


def _time_outs(topology: Topology) -> dict[DocumentPath, int]:
    found: dict[DocumentPath, int] = {}
    for role in topology.roles:
        for variables in process_variables(topology, role, *_TIMEOUT_VARIABLES):
            for stated in variables.values():
                seconds = number(stated)
                if seconds is not None:
                    found[stated.path] = seconds
    return found


def _readers_get_them(topology: Topology) -> Iterable[Diagnostic]:
    """Set for both roles, which many do, they reach their reader too."""
    for role in topology.roles:
        for name, value in role.env.items():
            reader = _READERS.get(name, role.name)
            if reader == role.name or any(process_variables(topology, _role(topology, reader), name)):
                continue
            yield at_value(
                topology,
                (role.name, "env", name),
                "PD432",
                f"`{name}: {value}` is read on {reader}, and set on {role.name} alone",
                severity=Severity.WARNING,
                notes=(f"{reader} goes on with its default",),
                help=f"move it to `{reader}.env`",
            )


def _role(topology: Topology, name: RoleName) -> Role:
    return topology.prefill if name == "prefill" else topology.decode


def _the_router_outlasts_them(topology: Topology) -> Iterable[Diagnostic]:
    request_s = topology.router.request_timeout_s
    if request_s is None:
        return
    for variables in process_variables(topology, topology.decode, _WAITING):
        stated = variables.get(_WAITING)
        seconds = _DEFAULT_WAITING_S if stated is None else number(stated)
        if seconds is not None and request_s < seconds:
            yield at_value(
                topology,
                ("router", "request_timeout_s"),
                "PD431",
                f"the router gives up after {request_s} s, decode waits {seconds} s for KV cache",
                severity=Severity.WARNING,
                notes=("its slot on decode stays taken until then",),
                help="let the router wait longer than decode",
            )


RULES = (
    Rule(code="PD324", check=_time_outs_end),
    Rule(code="PD431", check=_the_router_outlasts_them),
    Rule(code="PD432", check=_readers_get_them),
)
