"""KV events and loads that schedulers publish: said once, and where a server can listen."""

from __future__ import annotations

from collections.abc import Iterable

from pdctl.diagnostics import Diagnostic
from pdctl.engines.sglang.kv_events import CONFIG_FLAG, LOADS_FLAG, is_bindable
from pdctl.program import Rule
from pdctl.rules.base import at_value, line_of, stated_arg
from pdctl.rules.sglang.reading import is_at_most
from pdctl.topology.model import Topology

_LAST_WITHOUT_LOADS = "0.5.19"  # of the releases read, 0.5.20 is the first that has the flag


def _events_are_told_once(topology: Topology) -> Iterable[Diagnostic]:
    for role in topology.roles:
        stated = stated_arg(topology, role, CONFIG_FLAG)
        if stated is not None and role.kv_events_port is not None:
            field = (role.name, "kv_events_port")
            yield at_value(
                topology,
                stated.path,
                "PD240",
                f"where `{role.name}` publishes KV events is said twice",
                notes=(
                    f"also at {line_of(topology, field)}",
                    "SGLang would take the later flag, and nobody would listen on the planned ports",
                ),
                help=f"remove the flag, or `{role.name}.kv_events_port`",
            )


def _loads_can_be_published(topology: Topology) -> Iterable[Diagnostic]:
    """sglang srt/arg_groups/validation_hook.py, check_load_publish_args."""
    if is_at_most(topology, _LAST_WITHOUT_LOADS):
        return  # an unknown flag there, which the flag table says
    for role in topology.roles:
        stated = stated_arg(topology, role, LOADS_FLAG)
        endpoint = "off" if stated is None else str(stated.value).strip()
        if stated is None or endpoint.lower() in ("", "off"):
            continue
        has_events = role.kv_events_port is not None or stated_arg(topology, role, CONFIG_FLAG) is not None
        if not has_events:
            why, remedy = "needs published KV events", f"set `{role.name}.kv_events_port`, or remove the flag"
        elif endpoint.lower() != "auto" and not is_bindable(endpoint):
            why, remedy = "takes an address to listen on", "set `auto`, or such as `tcp://*:5600`"
        else:
            continue
        yield at_value(
            topology,
            stated.path,
            "PD241",
            f"`{LOADS_FLAG}` {why}",
            notes=("SGLang refuses to start",),
            help=remedy,
        )


RULES = (
    Rule(code="PD240", check=_events_are_told_once),
    Rule(code="PD241", check=_loads_can_be_published),
)
