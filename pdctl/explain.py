"""The long text behind a code: one Markdown page each, shipped inside the package."""

from __future__ import annotations

import re
from importlib.resources import files

from pdctl.diagnostics import DiagnosticError
from pdctl.topology.nearest import nearest

_PAGE = re.compile(r"PD[0-9]{3}\.md")


def codes() -> tuple[str, ...]:
    """Every code that has a page, in order."""
    names = (entry.name for entry in files("pdctl").joinpath("explanations").iterdir())
    return tuple(sorted(name.removesuffix(".md") for name in names if _PAGE.fullmatch(name)))


def explanation(code: str) -> str:
    """The page of `code`, in any case; raises `DiagnosticError` where there is none."""
    wanted = code.strip().upper()
    known = codes()
    if wanted not in known:
        near = nearest(wanted, known)
        hint = f"did you mean `{near}`? " if near is not None else ""
        raise DiagnosticError.one(
            "PD120", f"there is no code `{code}`", help=f"{hint}`pdctl explain` lists all of them"
        )
    return files("pdctl").joinpath("explanations", f"{wanted}.md").read_text(encoding="utf-8")


def title(code: str) -> str:
    """What the first line of a code's page says: `# PD302: page sizes differ` gives `page sizes differ`."""
    first_line = explanation(code).partition("\n")[0]
    return first_line.partition(": ")[2]
