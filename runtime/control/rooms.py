"""The states of a room, in SGLang's words and numbers, and the order in which they may follow each other.

A room is the per-request integer that joins one prefill sender with one decode receiver. Each side keeps
its own view of it:

    Bootstrapping     the other side has not been heard of
    WaitingForInput   decode's pages are known to both, nothing is computed yet
    Transferring      prefill has begun to compute and send
    Success, Failed   final; the side forgets the room
"""

from __future__ import annotations

from enum import IntEnum


class KVPoll(IntEnum):
    """SGLang's `KVPoll`. A room only moves up, except that it may fail from anywhere before `Success`."""

    Failed = 0
    Bootstrapping = 1
    WaitingForInput = 2
    Transferring = 3
    Success = 4

    @property
    def is_final(self) -> bool:
        return self in (KVPoll.Failed, KVPoll.Success)

    @property
    def is_handshaking(self) -> bool:
        return self in (KVPoll.Bootstrapping, KVPoll.WaitingForInput)


def advance(state: KVPoll, to: KVPoll) -> KVPoll:
    """The state after a report of `to`: late and repeated reports change nothing, final states stay."""
    if state.is_final:
        return state
    return to if to is KVPoll.Failed else max(state, to)


class RecentRooms:
    """Rooms that ended a short while ago, and why: for the half of a request that comes after the end.

    Bounded in number and time, so that a room id can be used again.
    """

    def __init__(self, *, max_rooms: int = 4096, ttl_s: float = 30.0) -> None:
        self._max_rooms = max_rooms
        self._ttl_s = ttl_s
        self._reasons: dict[int, tuple[str, float]] = {}

    def put(self, room: int, reason: str, *, now_s: float) -> None:
        self._reasons.pop(room, None)  # so that the order of the dict stays that of time
        self._reasons[room] = (reason, now_s + self._ttl_s)
        if len(self._reasons) > self._max_rooms:
            del self._reasons[next(iter(self._reasons))]

    def take(self, room: int, *, now_s: float) -> str | None:
        """The reason, once."""
        reason, expires_s = self._reasons.pop(room, ("", now_s))
        return reason if expires_s > now_s else None
