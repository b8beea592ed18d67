"""All checks over one survey, folded into verdicts."""

from __future__ import annotations

from pdctl.doctor.checks import CHECKS
from pdctl.doctor.model import Verdict, folded
from pdctl.doctor.survey import Survey


def examine(survey: Survey) -> tuple[Verdict, ...]:
    """In the order of the checks."""
    return folded(tuple(finding for check in CHECKS for finding in check(survey)))
