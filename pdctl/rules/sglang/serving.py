"""How the servers of an instance are spoken to: over plain HTTP, by the router and by pdctl."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value, stated_arg
from pdctl.topology.model import Topology

# With one of them, the HTTP port of a plan speaks something else. `grpc-port` is one beside it, and
# `enable-http2` still takes HTTP/1.
_OTHER_PROTOCOLS = {
    "ssl-certfile": "TLS",
    "smg-grpc-mode": "gRPC",
    "grpc-mode": "gRPC",
}


def _servers_speak_http(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        for flag, protocol in _OTHER_PROTOCOLS.items():
            stated = stated_arg(topology, role, flag)
            if stated is None or stated.value is False:
                continue
            yield at_value(
                topology,
                stated.path,
                "PD341",
                f"with `{flag}`, the servers of {role.name} speak {protocol}",
                notes=("the router gets an `http://` address of each, and so does what waits for them",),
                help="remove it: encrypt before the router" if protocol == "TLS" else "remove it",
            )


def _workers_ask_for_no_key(topology: Topology) -> Iterable[Diagnostic]:
    """With a key, SGLang answers 401 to all requests but those for its health (srt/utils/auth.py)."""
    found = (stated_arg(topology, role, "api-key") for role in topology.roles)
    for path in {stated.path: None for stated in found if stated is not None}:
        if topology.health.canary:
            yield at_value(
                topology,
                path,
                "PD253",
                "the canary doesn't know the servers' key, and will be refused",
                severity=Severity.WARNING,
                help="set `router.api_key_env` in its place, or `health.canary: false`",
            )


RULES = (
    Rule(code="PD341", check=_servers_speak_http),
    Rule(code="PD253", check=_workers_ask_for_no_key),
)
