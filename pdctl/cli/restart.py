"""`pdctl restart`."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from pdctl.cli.options import AsJson, Name, NoCanary, NoWait, SkipDoctor, Timeout, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl restart decode-0")
def restart(
    ctx: typer.Context,
    ids: Annotated[
        list[str], typer.Argument(metavar="ID", help="Instances or processes; decode-0 or NAME/decode-0.")
    ],
    name: Name = None,
    no_wait: NoWait = False,
    no_canary: NoCanary = False,
    skip_doctor: SkipDoctor = False,
    timeout_s: Timeout = None,
    as_json: AsJson = False,
) -> None:
    """Restart instances.

    All processes of an instance restart together. What they need and does not run is started too, nothing
    else is touched.
    """
    from pdctl.cli.operation import show_restart, telling_interrupts
    from pdctl.cli.targets import target_of
    from pdctl.lifecycle.up import UpOptions
    from pdctl.lifecycle.up import restart as restart_instances

    with output_of(ctx, as_json=as_json) as output:
        options = UpOptions(
            wait=not no_wait, canary=not no_canary, doctor=not skip_doctor, deadline_s=timeout_s
        )
        again = shlex.join(["pdctl", "restart", *ids, *(["--name", name] if name else [])])
        with telling_interrupts(output, again=again):
            target = target_of(name, ids)
            with output.progress() as sink:
                outcome = restart_instances(target.name, target.ids, sink, options)
        show_restart(output, outcome)
