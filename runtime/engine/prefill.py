"""The role of a prefill engine: compute prompts, send their K/V to the decode instance that owns the room.

The life of a disaggregated request, on both sides:

 1. The router sends the same body, with one room id, to a prefill and a decode engine at the same time. 2.
 Decode asks the bootstrap server in the body for the prefill rank, checks that both pools have the same
 layout,
    and dials it, unless it has a link already. `Hello`, `Welcome`.
    [Bootstrapping]
 3. Decode takes pages for the prompt and tells prefill which: `OpenRoom`. It may come before the request
 itself. 4. Prefill has both halves now and queues the prompt.
 [WaitingForInput] 5. Prefill computes chunk by chunk. The complete pages of each chunk go out while the
 next is computed, straight
    into decode's pages. `RoomState`.
    [Transferring]
 6. After the last chunk the rest goes out; when all of it is applied, so does the first token: `RoomDone`.
 Prefill
    answers its own half of the request, and frees its pages.
    [Success]
 7. Decode puts the request into its batch, and its first token on the wire.

What can happen instead ends in Failed on both sides: a time-out of steps 2-3 (here: `bootstrap_timeout_s`)
or 4-6 (decode: `waiting_timeout_s`), an abort by either client connection, a write that fails, a link that
breaks or falls silent. Pages outlive their request until no write can touch them: here until the sends in
flight are answered, there until prefill says so (`AbortDone`, `Failed`) or is gone.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial

from runtime.control.compat import Facts, hello_mismatch
from runtime.control.messages import (
    MAX_TEXT_LEN,
    PROTOCOL_VERSION,
    AbortDone,
    AbortRoom,
    Hello,
    Message,
    OpenRoom,
    Refused,
    RoomDone,
    RoomState,
    Welcome,
)
from runtime.control.network import ControlNetwork
from runtime.control.rooms import KVPoll, RecentRooms
from runtime.engine.compute import Model
from runtime.engine.live import LiveRequest, Sampled, abort
from runtime.engine.mailbox import Post, PostedLinks
from runtime.engine.page_share import PageShare
from runtime.engine.prefill_rooms import MAX_EARLY_ROOMS, DecodePeer, EarlyRoom, PrefillRoom, offer_fault
from runtime.engine.request import Finish, FinishReason
from runtime.engine.role import Desk, RoleCounts, other_half
from runtime.engine.settings import EngineSettings
from runtime.kv.checksums import layer_checksums
from runtime.kv.page_runs import join_runs, page_writes
from runtime.transfer.base import TransferBackend, TransferError

SWEEP_INTERVAL_S = 0.1

_log = logging.getLogger(__name__)


class PrefillRole:
    """Rooms by id while their request lives, by ticket while their last sends are in flight."""

    def __init__(
        self,
        desk: Desk,
        *,
        model: Model,
        facts: Facts,
        settings: EngineSettings,
        backend: TransferBackend,
        post: Post,
    ) -> None:
        self._desk = desk
        self._model = model
        self._facts = facts
        self._backend_name = settings.transfer_backend
        self._bootstrap_timeout_s = settings.bootstrap_timeout_s
        self._verify_kv = settings.verify_kv
        self._backend = backend
        self._post = post
        self._network = ControlNetwork(
            PostedLinks(post, self), heartbeat_interval_s=settings.heartbeat_interval_s
        )
        self._share = PageShare(model.layout.num_pages)
        self._peers: dict[int, DecodePeer] = {}
        self._rooms: dict[int, PrefillRoom] = {}
        self._room_of: dict[LiveRequest, PrefillRoom] = {}
        self._draining: dict[int, PrefillRoom] = {}
        self._early: dict[int, EarlyRoom] = {}
        self._ended_here = RecentRooms()  # ended before decode had opened them
        self._given_up = RecentRooms()  # decode gave up before it had opened them
        self._next_sweep_s = 0.0

    def listen(self, host: str) -> int:
        """Open the port that decode engines dial; it is registered with the bootstrap server."""
        return self._network.listen(host)

    # The role.

    def admit(self, live: LiveRequest) -> None:
        rendezvous = other_half(live.request)
        live.max_new_tokens = 1
        if rendezvous is None:
            self._desk.queue(live)
            return
        now_s, number = time.monotonic(), rendezvous.room
        given_up = self._given_up.take(number, now_s=now_s)
        if given_up is not None:
            self._desk.end(live, abort(f"decode gave up room {number}: {given_up}", status=503))
            return
        if number in self._rooms:
            self._desk.end(live, abort(f"room {number} is in use by another request", status=400))
            return
        self._ended_here.take(number, now_s=now_s)
        room = PrefillRoom(room=number, live=live, deadline_s=now_s + self._bootstrap_timeout_s)
        self._rooms[number] = self._room_of[live] = room
        early = self._early.pop(number, None)
        if early is not None:
            self._bind(room, early.peer, early.offer)

    def refused(self, live: LiveRequest) -> None:
        """Decode may have opened the room, or be about to: it must not wait for us."""
        rendezvous, finish = other_half(live.request), live.finish
        if rendezvous is None or finish is None or rendezvous.room in self._rooms:
            return
        early = self._early.pop(rendezvous.room, None)
        if early is not None:
            self._report_failure(early.peer, early.offer, finish.message or "")
        else:
            self._ended_here.put(rendezvous.room, finish.message or "", now_s=time.monotonic())

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        room = self._room_of.get(live)
        if room is None:  # a request without a room, such as a health check
            if first is not None:
                self._desk.conclude(live, first, Finish(reason=FinishReason.LENGTH))
            return
        peer, offer = room.peer, room.offer
        assert peer is not None
        assert offer is not None
        if room.state is KVPoll.WaitingForInput:
            room.state = KVPoll.Transferring
            self._network.send(peer.link_id, _state(offer, KVPoll.Transferring))
        if first is not None:
            room.first = first
            room.done = self._describe_done(room, offer, first, peer.wants_checksums or self._verify_kv)
        self._send_complete_pages(room, peer, offer)

    def released(self, live: LiveRequest) -> None:
        room = self._room_of.pop(live, None)
        if room is None:
            return
        del self._rooms[room.room]
        if room.peer is None or room.offer is None:
            reason = live.finish.message if live.finish else None
            self._ended_here.put(room.room, reason or "", now_s=time.monotonic())
            return
        if room in room.peer.backlog:
            room.peer.backlog.remove(room)
        if room.state is KVPoll.Success:
            self._return_share(room)
            return
        room.state = KVPoll.Failed
        self._draining[room.offer.ticket] = room
        room.peer.session.cancel(room.offer.ticket)
        if not room.num_in_flight:
            self._drained(room)

    def sweep(self, now_s: float) -> None:
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + SWEEP_INTERVAL_S
        waited = f"within {self._bootstrap_timeout_s:g} s"
        for room in [room for room in self._rooms.values() if room.deadline_s < now_s]:
            if room.state is KVPoll.Bootstrapping:
                message = f"no decode instance opened room {room.room} {waited}"
                self._desk.end(room.live, abort(message, status=503))
        for number, early in [item for item in self._early.items() if item[1].deadline_s < now_s]:
            del self._early[number]
            self._report_failure(early.peer, early.offer, f"no request for room {number} came {waited}")

    def counts(self) -> RoleCounts:
        states = [room.state for room in self._rooms.values()]
        return RoleCounts(
            num_handshaking=sum(state.is_handshaking for state in states) + len(self._early),
            num_transferring=states.count(KVPoll.Transferring) + len(self._draining),
            transfer_bytes=self._backend.num_bytes_sent(),
            num_links=len(self._peers),
        )

    def close(self) -> None:
        self._network.close()
        self._backend.close()

    # Links.

    def on_up(self, link_id: int) -> None:
        pass  # decode speaks first

    def on_message(self, link_id: int, message: Message) -> None:
        peer = self._peers.get(link_id)
        match message:
            case Hello() if peer is None:
                self._greet(link_id, message)
            case OpenRoom() if peer is not None:
                self._open(peer, message)
            case AbortRoom() if peer is not None:
                self._abort(peer, message)
            case _:
                self._network.close_link(link_id, f"`{type(message).__name__}` is out of place here")

    def on_down(self, link_id: int, reason: str) -> None:
        peer = self._peers.pop(link_id, None)
        if peer is None:
            return
        for number, early in list(self._early.items()):
            if early.peer is peer:
                del self._early[number]
        for room in list(self._rooms.values()):
            if room.peer is peer:
                self._desk.end(room.live, abort(f"lost the decode instance: {reason}", status=503))
        peer.session.close()

    def _greet(self, link_id: int, hello: Hello) -> None:
        fault = hello_mismatch(hello, self._facts, backend=self._backend_name)
        if fault is None:
            try:
                session = self._backend.connect(hello.endpoint)
            except TransferError as error:
                fault = str(error)
            else:
                self._peers[link_id] = DecodePeer(
                    link_id=link_id,
                    layout=replace(self._model.layout, num_pages=hello.num_pages),
                    session=session,
                    wants_checksums=hello.verify_kv,
                )
                self._network.send(link_id, Welcome(version=PROTOCOL_VERSION))
                return
        _log.error("refusing a decode instance: %s", fault)
        self._network.send(link_id, Refused(reason=fault))
        self._network.close_link(link_id, "refused")

    # Rooms.

    def _open(self, peer: DecodePeer, offer: OpenRoom) -> None:
        now_s = time.monotonic()
        room = self._rooms.get(offer.room)
        fault = offer_fault(offer, peer)
        if fault is None and room is None:
            fault = self._ended_here.take(offer.room, now_s=now_s)
        if fault is None and (offer.room in self._early or (room and room.peer is not None)):
            fault = f"room {offer.room} is in use by another request"
        if fault is None and len(self._early) >= MAX_EARLY_ROOMS:
            fault = f"{MAX_EARLY_ROOMS} rooms wait for their requests already"
        if fault is not None:
            self._report_failure(peer, offer, fault)
        elif room is None:
            deadline_s = now_s + self._bootstrap_timeout_s
            self._early[offer.room] = EarlyRoom(peer=peer, offer=offer, deadline_s=deadline_s)
        else:
            self._bind(room, peer, offer)

    def _bind(self, room: PrefillRoom, peer: DecodePeer, offer: OpenRoom) -> None:
        """Both halves are here: queue the prompt, unless the peer fills its share of the pool already."""
        room.peer, room.offer = peer, offer
        prompt_len = room.live.prompt_len
        if offer.prompt_len != prompt_len:
            message = f"prefill counts {prompt_len} prompt tokens, decode {offer.prompt_len}"
            self._desk.end(room.live, abort(message, status=500))
            return
        room.state = KVPoll.WaitingForInput
        peer.backlog.append(room)
        self._queue_backlog(peer)

    def _queue_backlog(self, peer: DecodePeer) -> None:
        while peer.backlog:
            room = peer.backlog[0]
            num_pages = self._model.layout.num_pages_for(room.live.prompt_len)
            if not self._share.take(peer.link_id, num_pages):
                return
            room.share_pages = num_pages
            peer.backlog.popleft()
            self._desk.queue(room.live)

    def _return_share(self, room: PrefillRoom) -> None:
        if room.share_pages and room.peer is not None:
            self._share.give_back(room.peer.link_id, room.share_pages)
            room.share_pages = 0
            for peer in list(self._peers.values()):  # one receiver's end may widen everyone's share
                self._queue_backlog(peer)

    def _abort(self, peer: DecodePeer, message: AbortRoom) -> None:
        """Decode gave up. It keeps its pages until we say that nothing can land in them."""
        room = self._rooms.get(message.room)
        gave_up = abort(f"decode gave up: {message.reason}", status=503)
        if message.ticket is None:
            if room is None:
                self._given_up.put(message.room, message.reason, now_s=time.monotonic())
            elif room.peer is None:
                self._desk.end(room.live, gave_up)
            return
        draining = self._draining.get(message.ticket)
        early = self._early.get(message.room)
        if room is not None and room.offer is not None and room.offer.ticket == message.ticket:
            room.abort_asked = True
            self._desk.end(room.live, gave_up)
        elif draining is not None and draining.peer is peer:
            draining.abort_asked = True
        else:
            if early is not None and early.offer.ticket == message.ticket:
                del self._early[message.room]
                self._given_up.put(message.room, message.reason, now_s=time.monotonic())
            self._network.send(peer.link_id, AbortDone(room=message.room, ticket=message.ticket))

    def _report_failure(self, peer: DecodePeer, offer: OpenRoom, reason: str) -> None:
        self._network.send(peer.link_id, _state(offer, KVPoll.Failed, reason))

    # Sends.

    def _send_complete_pages(self, room: PrefillRoom, peer: DecodePeer, offer: OpenRoom) -> None:
        """Send what no later chunk writes to: all complete pages, and at the end the last one as it is."""
        layout, live = self._model.layout, room.live
        num_pages = live.num_computed // layout.page_size
        if room.done is not None:
            num_pages = layout.num_pages_for(live.prompt_len)
        if num_pages == room.num_sent_pages:
            return
        fresh = slice(room.num_sent_pages, num_pages)
        runs = join_runs(live.pages[fresh], offer.pages[fresh])
        room.num_sent_pages = num_pages
        room.num_in_flight += 1
        self._desk.hold(live)
        peer.session.send(
            offer.ticket,
            page_writes(runs, src=layout, dst=peer.layout),
            lambda reason: self._post(partial(self._on_sent, room, reason)),
        )

    def _on_sent(self, room: PrefillRoom, reason: str | None) -> None:
        room.num_in_flight -= 1
        if reason is not None and room.state is KVPoll.Transferring:
            self._desk.end(room.live, abort(f"the KV transfer failed: {reason}", status=503))
        if not room.num_in_flight:
            if room.state is KVPoll.Failed:
                self._drained(room)
            elif room.done is not None:
                self._succeed(room, room.done)
        self._desk.unhold(room.live)

    def _succeed(self, room: PrefillRoom, done: RoomDone) -> None:
        assert room.peer is not None
        assert room.first is not None
        self._network.send(room.peer.link_id, done)
        room.state = KVPoll.Success
        self._desk.conclude(room.live, room.first, Finish(reason=FinishReason.LENGTH))

    def _drained(self, room: PrefillRoom) -> None:
        """A failed room has no send in flight any more: decode may use its pages for something else."""
        assert room.peer is not None
        assert room.offer is not None
        if self._draining.pop(room.offer.ticket, None) is None:
            return
        self._return_share(room)
        if room.abort_asked:
            done = AbortDone(room=room.room, ticket=room.offer.ticket)
            self._network.send(room.peer.link_id, done)
        else:
            finish = room.live.finish
            self._report_failure(room.peer, room.offer, (finish and finish.message) or "")

    def _describe_done(self, room: PrefillRoom, offer: OpenRoom, first: Sampled, hashed: bool) -> RoomDone:
        live, logprob = room.live, first.logprob
        checksums = None
        if hashed:
            checksums = layer_checksums(self._model.pool, self._model.layout, live.pages, live.prompt_len)
        return RoomDone(
            room=offer.room,
            ticket=offer.ticket,
            prompt_len=live.prompt_len,
            first_token=first.token_id,
            logprob=None if logprob is None else logprob.logprob,
            top_logprobs=() if logprob is None else logprob.top,
            checksums=checksums,
        )


def _state(offer: OpenRoom, state: KVPoll, reason: str = "") -> RoomState:
    return RoomState(room=offer.room, ticket=offer.ticket, state=state, reason=reason[:MAX_TEXT_LEN])
