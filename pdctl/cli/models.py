"""`pdctl models`: built-in models and their cache, as the runtime on this machine tells."""

from __future__ import annotations

from typing import Annotated

import typer

from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


@app.callback(epilog="Example: pdctl models pull smollm2-135m-instruct", no_args_is_help=False)
def models() -> None:
    """List and fetch built-in models."""


@verb(app, example="pdctl models list --json", name="list")
def list_models(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List built-in models.

    Each with its file in this machine's cache, where it is there.
    """
    from pdctl.cli.model_process import known_models
    from pdctl.views.models import models_lines

    with output_of(ctx, as_json=as_json) as output:
        found = known_models()
        output.show(found, models_lines(found, output.out))


@verb(app, example="pdctl models pull smollm2-135m-instruct")
def pull(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="As `pdctl models list` shows it.")],
    as_json: AsJson = False,
) -> None:
    """Fetch a model, or mend a damaged one.

    Its file goes to this machine's cache; stdout gets the path.
    """
    from pdctl.cli.model_process import pull_model

    with output_of(ctx, as_json=as_json) as output:
        with output.progress() as sink:
            path = pull_model(name, sink)
        output.show({"name": name, "path": path}, [path])
