"""What SGLang would refuse at start, or take and then ignore."""

from __future__ import annotations

from pdctl.program import Rule

RULES: tuple[Rule, ...] = ()
