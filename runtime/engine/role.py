"""What tells a unified, a prefill and a decode engine apart, and what each may ask of the scheduler.

Everything here is called on the engine thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from runtime.engine.live import LiveRequest, Sampled
from runtime.engine.request import Finish, GenerateInput, Rendezvous

FAKE_BOOTSTRAP_HOST = "2.2.2.2"  # SGLang's word for "nobody"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleCounts:
    """A role's share of `EngineStats`."""

    num_handshaking: int = 0
    num_transferring: int = 0
    transfer_bytes: int = 0
    num_links: int = 0
    num_rooms: int = 0  # that anything is kept of: past its request, until no byte of it can move
    num_reports: int = 0  # of ranks, on sends and on memory given back, that are still to come


def other_half(request: GenerateInput) -> Rendezvous | None:
    """Where the other half of a request is met; None when this engine is to do all of its part alone.

    That is so for requests without a room, such as health checks, and for SGLang's warm-up requests.
    """
    rendezvous = request.rendezvous
    if rendezvous is None or rendezvous.bootstrap_host == FAKE_BOOTSTRAP_HOST:
        return None
    return rendezvous


class Desk(Protocol):
    """The scheduler as its role sees it. A request's pages are those of its attention-DP rank."""

    def queue(self, live: LiveRequest) -> None:
        """Let the request be computed: it gets pages, now or when some are free, unless it has them."""
        ...

    def reserve(self, live: LiveRequest) -> bool:
        """Give the request the pages that it needs to start, all or none."""
        ...

    def resume(self, live: LiveRequest, first: Sampled) -> None:
        """The K/V of the whole prompt is in the request's pages: deliver the first token and decode on."""
        ...

    def conclude(self, live: LiveRequest, sampled: Sampled, finish: Finish) -> None:
        """Deliver a token and end the request with it."""
        ...

    def end(self, live: LiveRequest, finish: Finish) -> None:
        """End the request without a token. Ended requests are ignored."""
        ...

    def hold(self, live: LiveRequest) -> None:
        """Keep the request's pages, even past its end, until the matching `unhold`."""
        ...

    def unhold(self, live: LiveRequest) -> None: ...


class Role(Protocol):
    """How a request becomes schedulable, and what becomes of what was computed."""

    def admit(self, live: LiveRequest) -> None:
        """A request arrived and can be served: `queue` it, now or once it is ready to be computed."""
        ...

    def refused(self, live: LiveRequest) -> None:
        """A request arrived that cannot be served; it has got its answer already."""
        ...

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        """More of the prompt is in the pages; with `first`, all of it, and the request left the batch."""
        ...

    def released(self, live: LiveRequest) -> None:
        """The request ended, for whatever reason. Called once for each admitted request."""
        ...

    def sweep(self, now_s: float) -> None:
        """Called each time the loop goes round: time-outs, and what had to wait for pages."""
        ...

    def counts(self) -> RoleCounts: ...

    def close(self) -> None:
        """All requests have ended: close sockets, stop threads."""
        ...
