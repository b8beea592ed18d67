"""Do the clocks agree, as far as a call can tell?"""

from __future__ import annotations

from collections.abc import Iterator

from pdctl.doctor.model import Finding, Topic
from pdctl.doctor.survey import Survey

CLOCK = Topic("clock")
MOST_SKEW_S = 2.0
_NOTES = (
    "ages and log times of its processes are wrong by as much, tickets and certificates may be refused",
)
_HELP = "synchronise the clocks, with chrony or systemd-timesyncd, this machine's too"


def check_clock(survey: Survey) -> Iterator[Finding]:
    """Only what is certain: a call that takes long can't tell the time well."""
    agreeing: list[str] = []
    for needs, facts in survey.answered:
        clock = facts.clock
        if clock.least_s > MOST_SKEW_S:
            text = f"its clock is {_about(clock.middle_s, clock.uncertainty_s)} ahead of this machine's"
            yield CLOCK.warning(needs.name, "PD701", text, notes=_NOTES, help=_HELP)
        elif clock.most_s < -MOST_SKEW_S:
            text = f"its clock is {_about(-clock.middle_s, clock.uncertainty_s)} behind this machine's"
            yield CLOCK.warning(needs.name, "PD701", text, notes=_NOTES, help=_HELP)
        else:
            agreeing.append(needs.name)
    yield from _between(survey, agreeing)


def _between(survey: Survey, agreeing: list[str]) -> Iterator[Finding]:
    """Two nodes may both be near this machine's time and yet too far from each other."""
    clocks = {name: survey.facts[name].clock for name in agreeing}
    if not clocks:
        return
    ahead = max(clocks, key=lambda name: clocks[name].least_s)
    behind = min(clocks, key=lambda name: clocks[name].most_s)
    apart_s = clocks[ahead].least_s - clocks[behind].most_s
    if apart_s > MOST_SKEW_S:
        text = f"its clock is at least {apart_s:.1f} s ahead of that of `{behind}`"
        yield CLOCK.warning(ahead, "PD701", text, notes=_NOTES, help=_HELP)
        agreeing.remove(ahead)
    yield from (CLOCK.ok(name, f"within {MOST_SKEW_S:g} s of this machine's") for name in agreeing)


def _about(skew_s: float, uncertainty_s: float) -> str:
    """`34 s (± 0.2 s)`; whole seconds, so that nodes with the same fault share a line."""
    return f"{skew_s:.0f} s (± {max(0.1, uncertainty_s):.1f} s)"
