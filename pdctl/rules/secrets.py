"""Secrets that stand in the document, and so in plans, scripts, records and command lines."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.passed_on import passed_on
from pdctl.topology.model import Topology

# How names of variables and flags end that hold one: HF_TOKEN, WANDB_API_KEY, ssl-keyfile-password.
_ENDINGS = ("token", "api_key", "secret", "secret_key", "access_key", "password", "passwd")


def _secrets_are_elsewhere(topology: Topology) -> Iterable[Diagnostic]:
    for path, values in passed_on(topology):
        is_flag = path[-1] == "args"
        for key, value in values.items():
            if value and isinstance(value, str) and _names_a_secret(key):
                where = "on a command line, which every user of the node can read, and " if is_flag else ""
                yield at_value(
                    topology,
                    (*path, key),
                    "PD340",
                    f"the value of `{key}` is a secret in the open",
                    severity=Severity.WARNING,
                    notes=(f"it stands {where}in plans, scripts and what pdctl keeps on the nodes",),
                    help="set `router.api_key_env` for a key of the API"
                    if is_flag
                    else "export it on the nodes: processes inherit it from there",
                )


@cache
def _names_a_secret(key: str) -> bool:
    name = key.lower().replace("-", "_")
    return any(name == ending or name.endswith(f"_{ending}") for ending in _ENDINGS)


RULES = (Rule(code="PD340", check=_secrets_are_elsewhere),)
