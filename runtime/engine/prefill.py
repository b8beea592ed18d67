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

import time
from functools import partial

from runtime.control.compat import Facts
from runtime.control.messages import MAX_TEXT_LEN, AbortDone, AbortRoom, OpenRoom, RoomState
from runtime.control.rooms import KVPoll, RecentRooms
from runtime.engine.compute import Model
from runtime.engine.live import LiveRequest, Sampled, abort
from runtime.engine.mailbox import Post
from runtime.engine.page_share import PageShare
from runtime.engine.prefill_peers import DecodePeer, DecodePeers
from runtime.engine.prefill_rooms import MAX_EARLY_ROOMS, Offer, PrefillRoom, offer_fault
from runtime.engine.prefill_send import describe_done, next_copy
from runtime.engine.ranks.group import GroupKV
from runtime.engine.request import Finish, FinishReason
from runtime.engine.role import Desk, RoleCounts, other_half
from runtime.engine.settings import EngineSettings

SWEEP_INTERVAL_S = 0.1


class PrefillRole:
    """Rooms by id while their request lives, by ticket while their last sends are in flight."""

    def __init__(
        self,
        desk: Desk,
        *,
        model: Model,
        facts: Facts,
        settings: EngineSettings,
        kv: GroupKV,
        post: Post,
    ) -> None:
        self._desk = desk
        self._model = model
        self._bootstrap_timeout_s = settings.bootstrap_timeout_s
        self._verify_kv = settings.verify_kv
        self._kv = kv
        self._post = post
        self._peers = DecodePeers(
            self,
            facts=facts,
            kv=kv,
            backend_name=settings.transfer_backend,
            post=post,
            heartbeat_interval_s=settings.heartbeat_interval_s,
        )
        self._shares: tuple[PageShare[LiveRequest], ...] = tuple(  # by attention-DP rank
            PageShare(model.layout.num_pages, num_receivers=lambda: len(self._peers))
            for _ in model.allocators
        )
        self._rooms: dict[int, PrefillRoom] = {}
        self._room_of: dict[LiveRequest, PrefillRoom] = {}
        self._draining: dict[int, PrefillRoom] = {}
        self._early: dict[int, Offer] = {}  # by room: offers that came before their request
        self._ended_here = RecentRooms()  # rooms that ended before decode had offered pages
        self._given_up = RecentRooms()  # rooms that decode gave up before their request came
        self._next_sweep_s = 0.0

    def listen(self, host: str) -> int:
        """Open the port that decode engines dial; it is registered with the bootstrap server."""
        return self._peers.listen(host)

    # The role.

    def admit(self, live: LiveRequest) -> None:
        rendezvous = other_half(live.request)
        live.max_new_tokens = 1  # decode's are the rest
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
        self._ended_here.take(number, now_s=now_s)  # the id is in use again
        room = PrefillRoom(room=number, live=live, deadline_s=now_s + self._bootstrap_timeout_s)
        self._rooms[number] = self._room_of[live] = room
        early = self._early.pop(number, None)
        if early is not None:
            self._bind(room, early)

    def refused(self, live: LiveRequest) -> None:
        """Decode may have offered pages, or be about to: it must not wait for us."""
        rendezvous, finish = other_half(live.request), live.finish
        if rendezvous is None or finish is None or rendezvous.room in self._rooms:
            return
        early = self._early.pop(rendezvous.room, None)
        if early is not None:
            self._report(early, KVPoll.Failed, finish.message)
        else:
            self._ended_here.put(rendezvous.room, finish.message or "", now_s=time.monotonic())

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        room = self._room_of.get(live)
        if room is None:  # a request without a room, such as a health check
            if first is not None:
                self._desk.conclude(live, first, Finish(reason=FinishReason.LENGTH))
            return
        offer = room.offer
        assert offer is not None, "a prompt is queued when its room has an offer"
        if room.state is KVPoll.WaitingForInput:
            room.state = KVPoll.Transferring
            self._report(offer, KVPoll.Transferring)
        if first is not None:
            room.first = first
            hashed = self._verify_kv or offer.peer.wants_checksums
            room.done = describe_done(room, offer, first, kv=self._kv, model=self._model, hashed=hashed)
        self._send_pages(room, offer)

    def released(self, live: LiveRequest) -> None:
        room = self._room_of.pop(live, None)
        if room is None:
            return
        del self._rooms[room.room]
        if room.offer is None:
            reason = live.finish.message if live.finish else None
            self._ended_here.put(room.room, reason or "", now_s=time.monotonic())
        elif room.state is KVPoll.Success:
            self._leave_share(live)
        else:
            room.state = KVPoll.Failed
            self._draining[room.offer.ticket] = room
            self._kv.cancel(room.offer.peer.link_id, room.offer.ticket)
            if not room.num_in_flight:
                self._drained(room, room.offer)

    def sweep(self, now_s: float) -> None:
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + SWEEP_INTERVAL_S
        waited = f"within {self._bootstrap_timeout_s:g} s"
        for room in [room for room in self._rooms.values() if room.deadline_s < now_s]:
            if room.state is KVPoll.Bootstrapping:
                message = f"no decode instance opened room {room.room} {waited}"
                self._desk.end(room.live, abort(message, status=503))
        for offer in [offer for offer in self._early.values() if offer.deadline_s < now_s]:
            del self._early[offer.room]
            self._report(offer, KVPoll.Failed, f"no request for room {offer.room} came {waited}")

    def counts(self) -> RoleCounts:
        states = [room.state for room in self._rooms.values()]
        return RoleCounts(
            num_handshaking=sum(state.is_handshaking for state in states) + len(self._early),
            num_transferring=states.count(KVPoll.Transferring) + len(self._draining),
            transfer_bytes=self._kv.num_bytes_sent(),
            num_links=len(self._peers),
            num_rooms=len(self._rooms) + len(self._draining) + len(self._early),
            num_reports=self._kv.num_reports(),
        )

    def close(self) -> None:
        self._peers.close()

    # What decode instances say.

    def on_open(self, peer: DecodePeer, message: OpenRoom) -> None:
        now_s = time.monotonic()
        offer = Offer(peer=peer, message=message, deadline_s=now_s + self._bootstrap_timeout_s)
        room = self._rooms.get(message.room)
        fault = offer_fault(offer, page_size=self._model.layout.page_size)
        if fault is None and room is None:
            fault = self._ended_here.take(message.room, now_s=now_s)
        if fault is None and (message.room in self._early or (room and room.offer)):
            fault = f"room {message.room} is in use by another request"
        if fault is None and len(self._early) >= MAX_EARLY_ROOMS:
            fault = f"{MAX_EARLY_ROOMS} rooms wait for their requests already"
        if fault is not None:
            self._report(offer, KVPoll.Failed, fault)
        elif room is None:
            self._early[message.room] = offer
        else:
            self._bind(room, offer)

    def on_abort(self, peer: DecodePeer, message: AbortRoom) -> None:
        """Decode gave up. It keeps its pages until we say that nothing can land in them."""
        room = self._rooms.get(message.room)
        if message.ticket is None:
            if room is None:
                self._given_up.put(message.room, message.reason, now_s=time.monotonic())
            elif room.offer is None:
                self._desk.end(room.live, _gave_up(message))
            return
        draining = self._draining.get(message.ticket)
        early = self._early.get(message.room)
        if room is not None and room.offer is not None and room.offer.ticket == message.ticket:
            room.abort_asked = True
            self._desk.end(room.live, _gave_up(message))
        elif draining is not None:
            draining.abort_asked = True
        else:
            if early is not None and early.ticket == message.ticket:
                del self._early[message.room]
                self._given_up.put(message.room, message.reason, now_s=time.monotonic())
            self._peers.send(peer, AbortDone(room=message.room, ticket=message.ticket))

    def on_lost(self, peer: DecodePeer, reason: str) -> None:
        self._early = {number: offer for number, offer in self._early.items() if offer.peer is not peer}
        for room in list(self._rooms.values()):
            if room.offer is not None and room.offer.peer is peer:
                self._desk.end(room.live, abort(f"lost the decode instance: {reason}", status=503))

    # Rooms.

    def _bind(self, room: PrefillRoom, offer: Offer) -> None:
        """Both halves are here: queue the prompt, unless the peer fills its share of the pool already."""
        room.offer = offer
        live = room.live
        if offer.message.prompt_len != live.prompt_len:
            message = f"prefill counts {live.prompt_len} prompt tokens, decode {offer.message.prompt_len}"
            self._desk.end(live, abort(message, status=500))
            return
        room.state = KVPoll.WaitingForInput
        num_pages = self._model.layout.num_pages_for(live.prompt_len)
        for ready in self._shares[live.attn_dp_rank].add(offer.peer.link_id, live, num_pages):
            self._desk.queue(ready)

    def _leave_share(self, live: LiveRequest) -> None:
        for ready in self._shares[live.attn_dp_rank].remove(live):
            self._desk.queue(ready)

    def _send_pages(self, room: PrefillRoom, offer: Offer) -> None:
        copy = next_copy(room, offer, self._model)
        if copy is None:
            return
        room.num_in_flight += 1
        self._desk.hold(room.live)
        self._kv.send(
            offer.peer.link_id,
            copy,
            lambda reason: self._post(partial(self._on_sent, room, offer, reason)),
        )

    def _on_sent(self, room: PrefillRoom, offer: Offer, reason: str | None) -> None:
        room.num_in_flight -= 1
        if reason is not None and room.state is KVPoll.Transferring:
            self._desk.end(room.live, abort(f"the KV transfer failed: {reason}", status=503))
        if not room.num_in_flight:
            if room.state is KVPoll.Failed:
                self._drained(room, offer)
            elif room.done is not None and room.first is not None:
                self._peers.send(offer.peer, room.done)
                room.state = KVPoll.Success
                self._desk.conclude(room.live, room.first, Finish(reason=FinishReason.LENGTH))
        self._desk.unhold(room.live)

    def _drained(self, room: PrefillRoom, offer: Offer) -> None:
        """A failed room has no send in flight any more: decode may use its pages for something else."""
        if self._draining.pop(offer.ticket, None) is None:
            return
        self._leave_share(room.live)
        if room.abort_asked:
            self._peers.send(offer.peer, AbortDone(room=offer.room, ticket=offer.ticket))
        else:
            self._report(offer, KVPoll.Failed, room.live.finish and room.live.finish.message)

    def _report(self, offer: Offer, state: KVPoll, reason: str | None = None) -> None:
        text = (reason or "")[:MAX_TEXT_LEN]
        self._peers.send(
            offer.peer, RoomState(room=offer.room, ticket=offer.ticket, state=state, reason=text)
        )


def _gave_up(message: AbortRoom) -> Finish:
    return abort(f"decode gave up: {message.reason}", status=503)
