"""The way back from ranks to their leader, outside lock-step: what is done, and that they live."""

from __future__ import annotations

import itertools
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass

from runtime.control.messages import Message, RankUp, Reported
from runtime.control.network import ControlNetwork
from runtime.engine.ranks.commands import Invitation
from runtime.transfer.base import Completion

HEARTBEAT_INTERVAL_S = 5.0  # a rank that hangs is noticed after three
LINK_TIMEOUT_S = 60.0
PARTING_TIMEOUT_S = 5.0
LOSS_GRACE_S = 0.5  # between a lost link and what is made of it

OnLost = Callable[[str], object]
"""Told, on any thread, why this engine cannot go on: one of its ranks is gone."""


@dataclass(slots=True, kw_only=True)
class _Pending:
    num_left: int
    on_done: Completion
    reason: str | None = None


class Reports:
    """Joins the reports of all ranks that take part in one thing. Any thread may call any method."""

    def __init__(self) -> None:
        self._pending: dict[int, _Pending] = {}
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        """Moved, over all ranks."""
        return self._num_bytes

    @property
    def num_expected(self) -> int:
        """Things that not all of their ranks have reported yet."""
        return len(self._pending)

    def expect(self, num_ranks: int, on_done: Completion) -> int:
        """Give the id by which so many ranks will report; `on_done` gets the first reason for a failure."""
        report_id = next(self._ids)
        with self._lock:
            self._pending[report_id] = _Pending(num_left=num_ranks, on_done=on_done)
        return report_id

    def take(self, report_id: int, num_bytes: int, reason: str | None) -> None:
        with self._lock:
            pending = self._pending.get(report_id)
            if pending is None:
                return
            self._num_bytes += num_bytes
            pending.reason = pending.reason or reason
            pending.num_left -= 1
            if pending.num_left:
                return
            del self._pending[report_id]
        pending.on_done(pending.reason)


class LeaderLinks:
    """Where the other ranks report. A `LinkListener`; its methods run on the network thread."""

    def __init__(self, host: str, reports: Reports, *, on_lost: OnLost) -> None:
        self._reports = reports
        self._on_lost = on_lost
        self._token = secrets.randbits(63)
        self._rank_of: dict[int, int] = {}  # by link
        self._changed = threading.Condition()
        self._is_closing = False
        self._network = ControlNetwork(self, heartbeat_interval_s=HEARTBEAT_INTERVAL_S)
        self._port = self._network.listen(host)

    def invitation(self, host: str) -> Invitation:
        """What to tell the ranks; `host` is how they reach this one."""
        return Invitation(host=host, port=self._port, token=self._token)

    def wait_for(self, num_ranks: int) -> bool:
        """Whether so many ranks were linked in time."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self._rank_of) >= num_ranks, LINK_TIMEOUT_S)

    def expect_ends(self) -> None:
        """From now on ranks may go: they were told to."""
        self._is_closing = True

    def close(self) -> None:
        """Ranks that were told to stop hang up first: a link that this side cut would be a fault to them."""
        self._is_closing = True
        with self._changed:
            self._changed.wait_for(lambda: not self._rank_of, PARTING_TIMEOUT_S)
        self._network.close()

    def on_up(self, link_id: int) -> None:
        pass  # the rank speaks first

    def on_message(self, link_id: int, message: Message) -> None:
        match message:
            case RankUp() if message.token == self._token:
                with self._changed:
                    self._rank_of[link_id] = message.tp_rank
                    self._changed.notify()
            case Reported() if link_id in self._rank_of:
                self._reports.take(message.report_id, message.num_bytes, message.reason)
            case _:
                self._network.close_link(link_id, f"`{type(message).__name__}` is out of place here")

    def on_down(self, link_id: int, reason: str) -> None:
        with self._changed:
            rank = self._rank_of.pop(link_id, None)
            self._changed.notify()
        if rank is not None and not self._is_closing:
            # Of a rank of this node its end tells more, and comes at about the same time.
            timer = threading.Timer(LOSS_GRACE_S, self._tell_lost, (f"lost rank {rank}: {reason}",))
            timer.daemon = True
            timer.start()

    def _tell_lost(self, what: str) -> None:
        if not self._is_closing:
            self._on_lost(what)


class WorkerLink:
    """A rank's link to its leader. A `LinkListener`; its methods run on the network thread."""

    def __init__(self, tp_rank: int, *, on_lost: OnLost) -> None:
        self._tp_rank = tp_rank
        self._on_lost = on_lost
        self._token: int | None = None
        self._link_id: int | None = None
        self._network = ControlNetwork(self, heartbeat_interval_s=HEARTBEAT_INTERVAL_S)

    def dial(self, invitation: Invitation) -> None:
        self._token = invitation.token
        self._link_id = self._network.dial(invitation.host, invitation.port)

    def report(self, report_id: int, num_bytes: int, reason: str | None) -> None:
        """Tell the leader. From any thread."""
        if self._link_id is not None:
            self._network.send(
                self._link_id, Reported(report_id=report_id, num_bytes=num_bytes, reason=reason)
            )

    def close(self) -> None:
        self._on_lost = lambda _: None
        self._network.close()

    def on_up(self, link_id: int) -> None:
        assert self._token is not None, "the link was dialled with it"
        self._network.send(link_id, RankUp(tp_rank=self._tp_rank, token=self._token))

    def on_message(self, link_id: int, message: Message) -> None:
        pass  # the leader says nothing here: its commands come in lock-step

    def on_down(self, link_id: int, reason: str) -> None:
        self._on_lost(f"lost the leader of this engine: {reason}")
