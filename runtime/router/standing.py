"""Whether a worker takes requests, as a value and the two events that change it."""

from __future__ import annotations

from dataclasses import dataclass

from runtime.router.settings import HealthSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A worker starts outside and enters with its first good poll."""

    is_healthy: bool = False
    num_bad: int = 0  # bad polls in a row
    num_good: int = 0  # good polls in a row
    num_good_wanted: int = 1  # that bring it back when it is out


def after_poll(standing: Standing, *, is_good: bool, settings: HealthSettings) -> Standing:
    num_bad = 0 if is_good else standing.num_bad + 1
    num_good = standing.num_good + 1 if is_good else 0
    if standing.is_healthy:
        is_healthy = num_bad < settings.failure_threshold
        num_good_wanted = settings.success_threshold
    else:
        is_healthy = num_good >= standing.num_good_wanted
        num_good_wanted = standing.num_good_wanted
    return Standing(
        is_healthy=is_healthy, num_bad=num_bad, num_good=num_good, num_good_wanted=num_good_wanted
    )


def after_refusal(standing: Standing) -> Standing:
    """A request found nobody listening: out at once, and back with the next good poll."""
    return Standing(num_bad=standing.num_bad) if standing.is_healthy else standing
