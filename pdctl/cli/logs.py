"""`pdctl logs`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from pdctl.cli.options import AsJson, Name, new_app, verb
from pdctl.cli.output import Output, output_of
from pdctl.cli.signals import exit_code

if TYPE_CHECKING:
    from pdctl.lifecycle.logs import LogLine, LogNotice

app = new_app()


@verb(app, example="pdctl logs decode-0 -f --tail 50")
def logs(
    ctx: typer.Context,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Instances or processes. Left out: all of the deployment."),
    ] = None,
    name: Name = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written from now on.")
    ] = False,
    tail: Annotated[
        int, typer.Option("--tail", min=0, metavar="N", help="Last lines of each process.")
    ] = 100,
    as_json: AsJson = False,
) -> None:
    """Show the output of processes, merged.

    Every line begins with its process. With --json each line is an object.
    """
    from pdctl.cli.targets import target_of
    from pdctl.lifecycle.interrupt import signal_of
    from pdctl.lifecycle.logs import logs as read_logs

    with output_of(ctx, as_json=as_json) as output:
        target = target_of(name, ids or [])
        lines = read_logs(target.name, target.ids, tail=tail, follow=follow)
        try:
            output.write(_shown(lines, output), is_live=True)
        except KeyboardInterrupt as interrupt:
            if not follow:
                raise
            raise typer.Exit(exit_code(signal_of(interrupt))) from None  # there is no other end


def _shown(items: Iterator[LogLine | LogNotice], output: Output) -> Iterator[str]:
    from pdctl.lifecycle.logs import LogNotice
    from pdctl.views.logs import LogPrefixes, notice_line
    from pdctl.views.machine import to_json

    prefixes = LogPrefixes(output.out)
    for item in items:
        if isinstance(item, LogNotice):
            output.tell({"notice": item}, [notice_line(item, output.err)])
        elif output.is_json:
            yield to_json(item, indent=None)
        else:
            yield prefixes.line(item.process_id, item.text)
