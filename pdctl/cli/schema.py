"""`pdctl schema`."""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated

import typer

from pdctl.cli.options import AsJson, new_app, verb
from pdctl.cli.output import output_of

app = new_app()


class Document(StrEnum):
    TOPOLOGY = "topology"
    PLAN = "plan"
    FLAG_TABLE = "flag-table"
    SITE = "site"


@verb(app, example="pdctl schema topology > topology.schema.json")
def schema(
    ctx: typer.Context,
    document: Annotated[Document, typer.Argument(help="Whose schema.")] = Document.TOPOLOGY,
    as_json: AsJson = False,
) -> None:
    """Print the JSON Schema of a document.

    It is JSON with and without --json.
    """
    with output_of(ctx, as_json=as_json) as output:
        output.write([_text(document).rstrip("\n")])


def _text(document: Document) -> str:
    if document is Document.SITE:
        from pdctl.topology.site_profile import site_schema

        return json.dumps(site_schema(), indent=2, ensure_ascii=False)
    from pdctl.resources import resource_path

    return resource_path("schemas", f"{document}.schema.json").read_text(encoding="utf-8")
