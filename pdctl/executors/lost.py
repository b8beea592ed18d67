"""Nodes that were lost while an act goes on: asked again in the background, so that nobody waits for them."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.link import NodeLink
from pdctl.executors.shell import UnreachableError

ASK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loss:
    since: float  # monotonic
    error: UnreachableError


class LostNodes:
    """Which nodes are lost. A call to one that is known to be lost would only wait for its time-out again."""

    def __init__(self, *, ask_every_s: float = ASK_EVERY_S) -> None:
        self._ask_every_s = ask_every_s
        self._losses: dict[NodeLink, _Loss] = {}
        self._guard = threading.Lock()

    def require_reachable(self, link: NodeLink) -> None:
        """Raise why it was lost, if it still is."""
        with self._guard:
            loss = self._losses.get(link)
        if loss is not None:
            raise loss.error

    def since_s(self, link: NodeLink) -> float:
        """Seconds since it was lost; zero where it is not."""
        with self._guard:
            loss = self._losses.get(link)
        return 0.0 if loss is None else time.monotonic() - loss.since

    def note(self, link: NodeLink, error: UnreachableError) -> None:
        """It was lost just now; from now on it is asked until it answers."""
        with self._guard:
            if link in self._losses:
                return
            self._losses[link] = _Loss(since=time.monotonic(), error=error)
        name = f"lost-{link.label}"
        threading.Thread(target=self._ask_until_it_answers, args=(link,), name=name, daemon=True).start()

    def _ask_until_it_answers(self, link: NodeLink) -> None:
        while True:
            time.sleep(self._ask_every_s)
            try:
                link.call("list", [link.root()])
            except UnreachableError as error:
                with self._guard:
                    self._losses[link] = _Loss(since=self._losses[link].since, error=error)
                continue
            except DiagnosticError:  # it answers; what is wrong with it, the next call tells
                pass
            with self._guard:
                del self._losses[link]
            return
