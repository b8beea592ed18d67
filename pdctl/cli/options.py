"""Parameters that several verbs share, with one wording."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal, TypeVar

import typer

from pdctl.cli.completion import complete_deployments, complete_topologies

Command = TypeVar("Command", bound=Callable[..., None])

File = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="The topology; - reads standard input.", autocompletion=complete_topologies
    ),
]
Sets = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Overlay one value, as in decode.instances=2. Repeatable."
    ),
]
Profile = Annotated[
    str | None, typer.Option("--profile", metavar="NAME", help="Overlay a profile of the file.")
]
Rehearsal = Annotated[
    Literal["reference"] | None,
    typer.Option(
        "--engine", metavar="reference", help="Rehearse on this machine: that engine, a small model."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text, on stderr too.")]
Name = Annotated[
    str | None,
    typer.Option(
        "--name",
        "-n",
        metavar="NAME",
        help="The deployment. May be left out when there is just one.",
        autocompletion=complete_deployments,
    ),
]
ExitCode = Annotated[bool, typer.Option("--exit-code", help="Exit with 2 when changes are pending.")]
NoWait = Annotated[bool, typer.Option("--no-wait", help="Return when the processes run, ready or not.")]
NoCanary = Annotated[bool, typer.Option("--no-canary", help="Leave out the one real request at the end.")]
SkipDoctor = Annotated[
    bool, typer.Option("--skip-doctor", help="Don't look at the nodes before anything starts.")
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        min=0.001,
        help="Until a process must be ready; replaces health.ready_deadline_s.",
    ),
]


CONTEXT: dict[str, object] = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def new_app() -> typer.Typer:
    """The app that a verb's module holds."""
    return typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)


def verb(app: typer.Typer, *, example: str, name: str | None = None) -> Callable[[Command], Command]:
    """Decorate a verb's function; `example` ends its help text."""
    return app.command(name, epilog=f"Example: {example}", context_settings=dict(CONTEXT))
