"""`pdctl explain`."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.completion import complete_codes
from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@verb(app, example="pdctl explain PD302")
def explain(
    ctx: typer.Context,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="As a diagnostic shows it. Left out: list all.",
            autocompletion=complete_codes,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain a diagnostic code."""
    from pdctl.explain import codes, explanation, title
    from pdctl.views.explanation import Code, code_lines, explanation_lines

    with output_of(ctx, as_json=as_json) as output:
        if code is None:
            known = [Code(code=each, title=title(each)) for each in codes()]
            output.show(known, code_lines(known, output.out))
        else:
            text = explanation(code)
            output.show({"code": code.upper(), "text": text}, explanation_lines(text, output.out))
