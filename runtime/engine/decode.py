"""The role of a decode engine: fetch the K/V of a prompt from the prefill engine of its room, then decode.

The life of a request is told in `prefill.py`. What is particular here: pages are taken only when the
prefill peer has said `Welcome`, so a dead one pins nothing; and they are kept until that peer can no longer
write to them.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import deque
from dataclasses import dataclass
from functools import partial

from runtime.bootstrap.token import Token
from runtime.control.compat import Facts
from runtime.control.messages import (
    MAX_TEXT_LEN,
    PROTOCOL_VERSION,
    AbortDone,
    AbortRoom,
    Hello,
    OpenRoom,
    RoomDone,
    RoomState,
)
from runtime.control.rooms import KVPoll, advance
from runtime.engine.compute import Model
from runtime.engine.decode_peers import PrefillPeer, PrefillPeers, RoomMessage
from runtime.engine.live import LiveRequest, Sampled, abort
from runtime.engine.mailbox import Post
from runtime.engine.ranks.group import GroupKV
from runtime.engine.request import TokenLogprob
from runtime.engine.role import Desk, RoleCounts, other_half
from runtime.engine.settings import EngineSettings
from runtime.kv.checksum_table import find_damage

SWEEP_INTERVAL_S = 0.1
MAX_DRAIN_S = 30.0  # for `AbortDone` of a peer whose link lives; the waiting time-out if that is shorter

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class _Room:
    """One request on the decode side. It has a ticket from the moment that prefill knows its pages."""

    room: int
    live: LiveRequest
    peer: PrefillPeer
    deadline_s: float
    state: KVPoll = KVPoll.Bootstrapping
    ticket: int | None = None


class DecodeRole:
    """Rooms by request while that lives, by ticket while prefill may write into their pages."""

    def __init__(
        self,
        desk: Desk,
        *,
        model: Model,
        facts: Facts,
        settings: EngineSettings,
        kv: GroupKV,
        post: Post,
        token: Token | None = None,
    ) -> None:
        """`token`: what bootstrap servers of prefill instances want to be shown."""
        self._desk = desk
        self._model = model
        self._settings = settings
        self._kv = kv
        self._post = post
        self._peers = PrefillPeers(
            self,
            hello=_describe(model, facts, settings, kv),
            facts=facts,
            post=post,
            token=token,
            lookup_timeout_s=settings.bootstrap_timeout_s,
            heartbeat_interval_s=settings.heartbeat_interval_s,
        )
        self._room_of: dict[LiveRequest, _Room] = {}  # in the order of arrival
        self._in_use: set[tuple[PrefillPeer, int]] = set()  # room ids, until their pages are safe
        # By attention-DP rank: a full pool holds up nobody but its own.
        self._wanting_pages: tuple[deque[_Room], ...] = tuple(deque() for _ in model.allocators)
        self._open: dict[int, _Room] = {}  # by ticket, also those whose request has ended
        self._num_bytes = 0  # of K/V that arrived whole; a one-sided receiver does not see its writes
        self._next_sweep_s = 0.0

    # The role.

    def admit(self, live: LiveRequest) -> None:
        rendezvous = other_half(live.request)
        if rendezvous is None:
            self._desk.queue(live)
            return
        peer = self._peers.find((rendezvous.bootstrap_host, rendezvous.bootstrap_port))
        if (peer, rendezvous.room) in self._in_use:
            message = f"room {rendezvous.room} is in use by another request"
            self._desk.end(live, abort(message, status=400))
            return
        room = _Room(
            room=rendezvous.room,
            live=live,
            peer=peer,
            deadline_s=time.monotonic() + self._settings.bootstrap_timeout_s,
        )
        self._room_of[live] = room
        self._in_use.add((peer, room.room))
        if peer.is_ready:
            self._wanting_pages[live.attn_dp_rank].append(room)

    def refused(self, live: LiveRequest) -> None:
        """Prefill may have taken its half, and would wait for us until its time-out."""
        rendezvous = other_half(live.request)
        if rendezvous is None or live.finish is None:
            return
        peer = self._peers.find((rendezvous.bootstrap_host, rendezvous.bootstrap_port))
        if (peer, rendezvous.room) not in self._in_use:
            self._give_up(peer, rendezvous.room, None, live.finish.message)

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        if first is not None:  # a request without a room, such as a health check
            self._desk.resume(live, first)

    def released(self, live: LiveRequest) -> None:
        room = self._room_of.pop(live, None)
        if room is None:
            return
        room.state = KVPoll.Failed
        reason = live.finish.message if live.finish else None
        self._give_up(room.peer, room.room, room.ticket, reason)
        if room.ticket is not None:  # still open: prefill answers when nothing can land any more
            room.deadline_s = time.monotonic() + min(MAX_DRAIN_S, self._settings.waiting_timeout_s)
            return
        self._in_use.discard((room.peer, room.room))
        wanting = self._wanting_pages[live.attn_dp_rank]
        if room in wanting:
            wanting.remove(room)

    def sweep(self, now_s: float) -> None:
        for wanting in self._wanting_pages:
            self._open_rooms(wanting, now_s)
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + SWEEP_INTERVAL_S
        for room in [room for room in self._room_of.values() if room.deadline_s < now_s]:
            self._desk.end(room.live, abort(self._describe_timeout(room), status=503))
        for room in [room for room in self._open.values() if room.deadline_s < now_s]:
            _log.error("%s did not confirm the end of room %d in time", room.peer.name, room.room)
            self._settle(room)

    def counts(self) -> RoleCounts:
        states = [room.state for room in self._room_of.values()]
        num_draining = sum(room.state is KVPoll.Failed for room in self._open.values())
        return RoleCounts(
            num_handshaking=sum(state.is_handshaking for state in states),
            num_transferring=states.count(KVPoll.Transferring) + num_draining,
            transfer_bytes=self._num_bytes,
            num_links=len(self._peers),
            num_rooms=len(self._in_use),
            num_reports=self._kv.num_reports(),
        )

    def close(self) -> None:
        self._peers.close()

    # What prefill says.

    def on_ready(self, peer: PrefillPeer) -> None:
        for room in self._room_of.values():
            if room.peer is peer:
                self._wanting_pages[room.live.attn_dp_rank].append(room)

    def on_lost(self, peer: PrefillPeer, reason: str, status: int) -> None:
        for room in [room for room in self._open.values() if room.peer is peer]:
            self._settle(room)
        for room in [room for room in self._room_of.values() if room.peer is peer]:
            self._desk.end(room.live, abort(reason, status=status))

    def on_room(self, peer: PrefillPeer, message: RoomMessage) -> None:
        room = self._open.get(message.ticket)
        if room is None or room.peer is not peer:
            return  # late word on a room that is settled
        if isinstance(message, RoomState) and message.state is not KVPoll.Failed:
            room.state = advance(room.state, message.state)
            return
        self._settle(room)
        if self._room_of.pop(room.live, None) is None:
            return  # the request ended on our side before, and this is the answer
        match message:
            case RoomDone():
                self._finish_transfer(room, message)
            case RoomState():
                self._desk.end(room.live, abort(f"{peer.name}: {message.reason}", status=503))
            case AbortDone():
                self._desk.end(room.live, abort(f"{peer.name} dropped the room", status=503))

    # Rooms.

    def _open_rooms(self, wanting: deque[_Room], now_s: float) -> None:
        """Give pages to rooms in the order of their arrival, and tell prefill where they are."""
        while wanting and self._desk.reserve(wanting[0].live):
            room = wanting.popleft()
            live, layout = room.live, self._model.layout
            pages = live.pages[: layout.num_pages_for(live.prompt_len)]
            room.ticket = ticket = secrets.randbits(63)
            room.state = KVPoll.WaitingForInput
            room.deadline_s = now_s + self._settings.waiting_timeout_s
            self._open[ticket] = room
            self._desk.hold(live)
            self._kv.allow(ticket, attn_dp_rank=live.attn_dp_rank, pages=pages)
            message = OpenRoom(
                room=room.room,
                ticket=ticket,
                attn_dp_rank=live.attn_dp_rank,
                prompt_len=live.prompt_len,
                pages=pages,
            )
            self._peers.send(room.peer, message)

    def _finish_transfer(self, room: _Room, done: RoomDone) -> None:
        live = room.live
        fault = self._find_damage(live, done)
        if fault is not None:
            _log.error("room %d: %s", room.room, fault)
            self._desk.end(live, abort(fault, status=500))
            return
        room.state = KVPoll.Success
        layout = self._model.layout
        num_slots = layout.num_pages_for(live.prompt_len) * layout.page_size
        self._num_bytes += num_slots * layout.token_bytes * self._kv.shape.attn_tp_size
        logprob = None
        if done.logprob is not None:
            logprob = TokenLogprob(token_id=done.first_token, logprob=done.logprob, top=done.top_logprobs)
        self._desk.resume(live, Sampled(token_id=done.first_token, logprob=logprob))

    def _find_damage(self, live: LiveRequest, done: RoomDone) -> str | None:
        if done.prompt_len != live.prompt_len:
            return f"prefill computed {done.prompt_len} prompt tokens, decode counts {live.prompt_len}"
        if done.first_token >= self._model.vocab_size:
            return f"prefill drew token {done.first_token}, the vocabulary here has {self._model.vocab_size}"
        if done.checksums is None:
            return None
        by_rank = self._kv.checksums(
            attn_dp_rank=live.attn_dp_rank, pages=live.pages, num_tokens=live.prompt_len
        )
        damage = find_damage(by_rank, done.checksums, self._model.num_kv_heads)
        if damage is None:
            return None
        return (
            f"the KV of layer {damage.layer}, head {damage.head} is not what prefill sent: its checksum "
            "differs after the transfer"
        )

    def _settle(self, room: _Room) -> None:
        """Nothing may write into the room's pages any more; they are held until nothing does."""
        if room.ticket is not None and self._open.pop(room.ticket, None) is not None:
            self._kv.revoke(
                room.ticket,
                attn_dp_rank=room.live.attn_dp_rank,
                on_quiet=lambda: self._post(partial(self._on_quiet, room)),
            )
            room.ticket = None

    def _on_quiet(self, room: _Room) -> None:
        self._desk.unhold(room.live)
        self._in_use.discard((room.peer, room.room))

    def _give_up(self, peer: PrefillPeer, room: int, ticket: int | None, reason: str | None) -> None:
        self._peers.send(peer, AbortRoom(room=room, ticket=ticket, reason=(reason or "")[:MAX_TEXT_LEN]))

    def _describe_timeout(self, room: _Room) -> str:
        settings = self._settings
        if room.ticket is not None:
            waited = f"{settings.waiting_timeout_s:g} s"
            return f"the KV of room {room.room} did not arrive from {room.peer.name} within {waited}"
        waited = f"{settings.bootstrap_timeout_s:g} s"
        if room.peer.is_ready:
            return f"no KV pages were free for room {room.room} within {waited}"
        return f"{room.peer.name} could not be reached within {waited}"


def _describe(model: Model, facts: Facts, settings: EngineSettings, kv: GroupKV) -> Hello:
    layout = model.layout
    return Hello(
        version=PROTOCOL_VERSION,
        backend=settings.transfer_backend,
        attn_tp_size=kv.shape.attn_tp_size,
        attn_dp_size=kv.shape.attn_dp_size,
        num_layers=layout.num_layers,
        num_pages=layout.num_pages,
        page_size=layout.page_size,
        num_kv_heads=model.num_kv_heads,
        head_dim=layout.head_dim,
        dtype=facts.dtype,
        endpoints=kv.endpoints(),
        verify_kv=settings.verify_kv,
    )
