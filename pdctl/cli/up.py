"""`pdctl up`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from pdctl.apply.verify import Verify
from pdctl.cli.options import (
    AsJson,
    File,
    NoCanary,
    NoWait,
    Profile,
    Rehearsal,
    Sets,
    SkipDoctor,
    Timeout,
    new_app,
    verb,
)
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl up topologies/laptop_1p1d.yaml")
def up(
    ctx: typer.Context,
    file: File,
    sets: Sets = None,
    profile: Profile = None,
    engine: Rehearsal = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would change, as `diff` does.")
    ] = False,
    no_wait: NoWait = False,
    no_canary: NoCanary = False,
    verify: Annotated[
        Verify,
        typer.Option(help="`pairs`: one request over each pair of a prefill and a decode instance, too."),
    ] = Verify.ROUTER,
    skip_doctor: SkipDoctor = False,
    timeout_s: Timeout = None,
    foreground: Annotated[
        bool,
        typer.Option(
            "--foreground",
            help="Inside a Slurm job: stay, and end with the deployment, or end it with the job.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Make what runs equal to a topology, and prove that it serves."""
    from pdctl.cli.operation import show_up, telling_interrupts
    from pdctl.cli.planning import plan_of, show_changes, source_of
    from pdctl.lifecycle.up import UpOptions
    from pdctl.lifecycle.up import up as make_true

    options = UpOptions(
        wait=not no_wait,
        canary=not no_canary,
        verify=verify,
        doctor=not skip_doctor,
        deadline_s=timeout_s,
    )
    with output_of(ctx, as_json=as_json) as output:
        if foreground:
            from pdctl.cli.foreground import stay

            stay(output, source_of(file, sets, profile, engine), options)
            return
        with telling_interrupts(output, again=_again(file, sets, profile, engine)):
            planned = plan_of(output, file, sets, profile, engine)
            if dry_run:
                show_changes(output, planned)
                return
            with output.progress() as sink:
                outcome = make_true(planned, sink, options)
        show_up(output, outcome)


def _again(file: str, sets: list[str] | None, profile: str | None, engine: str | None) -> str:
    """The same command without what only concerns how to wait."""
    overlays = [word for each in sets or () for word in ("--set", each)]
    overlays += [] if profile is None else ["--profile", profile]
    overlays += [] if engine is None else ["--engine", engine]
    return shlex.join(["pdctl", "up", file, *overlays])
