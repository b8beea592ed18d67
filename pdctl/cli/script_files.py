"""What `pdctl render` does besides drawing: look at the plan once more, and write files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pdctl.diagnostics import Diagnostic, DiagnosticError
from pdctl.plan.consistency import inconsistencies
from pdctl.plan.model import LaunchPlan


def require_consistent(plan: LaunchPlan) -> None:
    """Raise `DiagnosticError` for a plan that contradicts itself: nobody looks after a written script."""
    found = inconsistencies(plan)
    if found:
        raise DiagnosticError(
            tuple(Diagnostic(code="PD508", message=str(each)) for each in found),
        )


def write_scripts(scripts: Mapping[str, str], directory: Path) -> list[str]:
    """Executable files under `directory`, which is made where it isn't there; their paths."""
    paths = [directory / name for name in scripts]
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, scripts.values(), strict=True):
            path.write_text(text, encoding="utf-8")
            path.chmod(0o700)  # variables of the topology may be nobody else's business
    except OSError as error:
        raise DiagnosticError.one("PD509", f"can't write `{directory}`: {error.strerror}") from error
    return [str(path) for path in paths]
