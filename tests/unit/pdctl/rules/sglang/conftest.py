"""SGLang topologies from a few lines, and what the rules for SGLang say about them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.models.resolve import with_facts
from pdctl.rules.sglang import RULES
from pdctl.topology.load import load_text

DEFAULTS = {
    "model": "{path: Qwen/Qwen3-32B}",
    "engine": '{kind: sglang, version: "0.5.23"}',
    "cluster": "{executor: ssh, nodes: 8, devices_per_node: 8}",
    "transfer": "{backend: mooncake}",
    "prefill": "{}",
    "decode": "{}",
}

Said = Callable[..., list[str]]


@pytest.fixture
def said() -> Said:
    """`said(prefill="{parallel: {tp: 2}}", version="0.5.9")` as `error PD316`, in the order of the rules."""

    def of(*, version: str | None = None, **sections: str) -> list[str]:
        parts = {**DEFAULTS, **sections}
        if version is not None:
            parts["engine"] = f'{{kind: sglang, version: "{version}"}}'
        text = "schema: pdctl/v1\nname: demo\n" + "".join(f"{key}: {value}\n" for key, value in parts.items())
        topology, _ = with_facts(load_text(text).require(), lambda path: None)
        return [f"{each.severity} {each.code}" for rule in RULES for each in rule.check(topology)]

    return of
