from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from typer.main import get_command

from pdctl.cli.verbs import HELP_OF_VERBS

Golden = Callable[[str, str], None]
WORDS = [
    (),
    *((verb,) for verb in HELP_OF_VERBS),
    ("models", "list"),
    ("models", "pull"),
    ("engine", "inspect"),
]


@pytest.mark.parametrize("words", WORDS, ids=" ".join)
def test_the_help_of_every_verb(golden: Golden, pdctl: Callable[..., Any], words: tuple[str, ...]) -> None:
    ran = pdctl(*words, "--help")
    golden(f"screens/help/{'-'.join(words) or 'pdctl'}.txt", ran.out)
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize("verb", HELP_OF_VERBS)
def test_the_table_of_verbs_says_what_each_verb_says_itself(verb: str) -> None:
    command = get_command(importlib.import_module(f"pdctl.cli.{verb}").app)
    assert command.help is not None
    assert command.help.partition("\n")[0] == HELP_OF_VERBS[verb]


@pytest.mark.parametrize("words", WORDS[1:], ids=" ".join)
def test_every_help_text_has_an_example(pdctl: Callable[..., Any], words: tuple[str, ...]) -> None:
    assert "Example: pdctl " in pdctl(*words, "--help").out


def test_help_without_a_verb_fails_and_goes_to_stderr(pdctl: Callable[..., Any]) -> None:
    ran = pdctl()
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("Usage: pdctl ")


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        (["--help"], {"rich", "yaml", "jsonschema", "pdctl.cli.plan", "pdctl.lifecycle", "pydantic"}),
        (["plan", "topologies/laptop_1p1d.yaml"], {"rich", "pdctl.lifecycle.up", "pdctl.apply", "pydantic"}),
    ],
    ids=["help", "plan"],
)
def test_a_verb_imports_nothing_that_it_does_not_need(words: list[str], heavy: set[str]) -> None:
    script = (
        f"import sys; from pdctl.cli.app import run; run({words!r}); print(*sys.modules, file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert not heavy & set(ran.stderr.split())


@pytest.mark.parametrize(
    ("typed", "offered"),
    [("pdctl va", "validate"), ("pdctl plan --ex", "--exit-code"), ("pdctl list mod", "models")],
)
def test_the_shell_completes_verbs_options_and_names(typed: str, offered: str) -> None:
    script = "from pdctl.cli.app import run; run([])"
    environ = {"_PDCTL_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": typed, "PATH": "/bin"}
    ran = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, text=True, env=environ
    )
    assert offered in ran.stdout
