"""Words that a shell would replace, and nothing does here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import at_value
from pdctl.rules.passed_on import passed_on
from pdctl.topology.model import Topology
from pdctl.topology.source import DocumentPath

# `$NAME` as shells have it, `$(NAME)` as Kubernetes has it, and a home folder at the beginning of a path.
_VARIABLE = re.compile(r"\$(?P<name>[A-Za-z_][A-Za-z0-9_]*)|\$\((?P<command>[^()]*)\)")
_HOME = re.compile(r"(?:^|[:,=])(?P<home>~/)")


def _nothing_is_left_to_a_shell(topology: Topology) -> Iterable[Diagnostic]:
    for path, text in _texts(topology):
        if "$" not in text and "~" not in text:
            continue
        found = _VARIABLE.search(text)
        if found is not None:
            name = found["name"] or found["command"]
            yield _kept(topology, path, found.group(), _reference(name))
        elif _HOME.search(text) is not None:
            yield _kept(topology, path, "~/", "write the whole path, or `${HOME}/` where yours is meant")


def _reference(name: str) -> str:
    return (
        f"write `${{{name}}}`, which is replaced when the document is loaded"
        if name.isidentifier()
        else "write what it stands for"
    )


def _kept(topology: Topology, path: DocumentPath, word: str, hint: str) -> Diagnostic:
    return at_value(
        topology,
        path,
        "PD346",
        f"`{word}` stays as it is: no shell sees it",
        severity=Severity.WARNING,
        notes=("processes are started from their words, and get them as they stand",),
        help=hint,
    )


def _texts(topology: Topology) -> Iterator[tuple[DocumentPath, str]]:
    yield ("model", "path"), topology.model.path
    for path, values in passed_on(topology):
        for key, value in values.items():
            if isinstance(value, str):
                yield (*path, key), value


RULES = (Rule(code="PD346", check=_nothing_is_left_to_a_shell),)
