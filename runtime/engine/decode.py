"""The role of a decode engine: fetch the K/V of a prompt from the prefill engine of its room, then decode.

The life of a request is told in `prefill.py`. What is particular here: pages are taken only when the
prefill peer has said `Welcome`, so a dead one pins nothing; and they are kept until that peer can no longer
write to them.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runtime.bootstrap.client import BootstrapError, PrefillServer, find_prefill
from runtime.control.compat import Facts, mismatch
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
from runtime.control.rooms import KVPoll, advance
from runtime.engine.compute import Model
from runtime.engine.decode_rooms import Address, DecodeRoom, PrefillPeer
from runtime.engine.live import LiveRequest, Sampled, abort
from runtime.engine.mailbox import Post, PostedLinks
from runtime.engine.request import TokenLogprob
from runtime.engine.role import Desk, RoleCounts, other_half
from runtime.engine.settings import EngineSettings
from runtime.kv.checksums import first_difference, layer_checksums
from runtime.kv.page_runs import PageWindow
from runtime.transfer.base import TransferBackend

SWEEP_INTERVAL_S = 0.1
DRAIN_TIMEOUT_S = 30.0  # for `AbortDone` of a peer whose link lives
NUM_LOOKUP_THREADS = 16

_log = logging.getLogger(__name__)


class DecodeRole:
    """Rooms by request until prefill has answered, by ticket while prefill may write into their pages."""

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
        self._settings = settings
        self._backend = backend
        self._post = post
        self._network = ControlNetwork(
            PostedLinks(post, self), heartbeat_interval_s=settings.heartbeat_interval_s
        )
        self._lookups = ThreadPoolExecutor(NUM_LOOKUP_THREADS, thread_name_prefix="bootstrap-lookup")
        self._stopped = threading.Event()
        self._peers: dict[Address, PrefillPeer] = {}
        self._peer_of_link: dict[int, PrefillPeer] = {}
        self._room_of: dict[LiveRequest, DecodeRoom] = {}
        self._wanting_pages: deque[DecodeRoom] = deque()
        self._open: dict[int, DecodeRoom] = {}  # by ticket: prefill may write, draining ones included
        self._next_sweep_s = 0.0

    # The role.

    def admit(self, live: LiveRequest) -> None:
        rendezvous = other_half(live.request)
        if rendezvous is None:
            self._desk.queue(live)
            return
        peer = self._find_peer((rendezvous.bootstrap_host, rendezvous.bootstrap_port))
        if any(known.room == rendezvous.room for known in peer.rooms):
            message = f"room {rendezvous.room} is in use by another request"
            self._desk.end(live, abort(message, status=400))
            return
        room = DecodeRoom(
            room=rendezvous.room,
            live=live,
            peer=peer,
            deadline_s=time.monotonic() + self._settings.bootstrap_timeout_s,
        )
        self._room_of[live] = room
        peer.rooms.add(room)
        if peer.is_ready:
            self._wanting_pages.append(room)

    def refused(self, live: LiveRequest) -> None:
        """Prefill may wait for us: tell it, if there is a link to tell it by."""
        rendezvous = other_half(live.request)
        if rendezvous is None or live.finish is None:
            return
        peer = self._peers.get((rendezvous.bootstrap_host, rendezvous.bootstrap_port))
        if peer is not None:
            self._tell_given_up(peer, rendezvous.room, None, live.finish.message)

    def computed(self, live: LiveRequest, first: Sampled | None) -> None:
        if first is not None:  # a request without a room, such as a health check
            self._desk.resume(live, first)

    def released(self, live: LiveRequest) -> None:
        room = self._room_of.pop(live, None)
        if room is None:
            return
        room.state = KVPoll.Failed
        reason = live.finish.message if live.finish else None
        self._tell_given_up(room.peer, room.room, room.ticket, reason)
        if room.ticket is not None:
            room.deadline_s = time.monotonic() + DRAIN_TIMEOUT_S
            return  # still in `_open`: prefill answers when nothing can land any more
        room.peer.rooms.discard(room)
        if room in self._wanting_pages:
            self._wanting_pages.remove(room)

    def sweep(self, now_s: float) -> None:
        self._open_rooms(now_s)
        if now_s < self._next_sweep_s:
            return
        self._next_sweep_s = now_s + SWEEP_INTERVAL_S
        for room in [room for room in self._room_of.values() if room.deadline_s < now_s]:
            self._desk.end(room.live, abort(self._describe_timeout(room), status=503))
        for room in [room for room in self._open.values() if room.deadline_s < now_s]:
            _log.error("prefill did not confirm the end of room %d within %g s", room.room, DRAIN_TIMEOUT_S)
            self._settle(room)

    def counts(self) -> RoleCounts:
        states = [room.state for room in self._room_of.values()]
        num_draining = sum(room.state is KVPoll.Failed for room in self._open.values())
        return RoleCounts(
            num_handshaking=sum(state.is_handshaking for state in states),
            num_transferring=states.count(KVPoll.Transferring) + num_draining,
            num_links=len(self._peer_of_link),
        )

    def close(self) -> None:
        self._stopped.set()
        self._network.close()
        self._backend.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    # Peers.

    def _find_peer(self, address: Address) -> PrefillPeer:
        """The peer at a bootstrap address; an unknown one is looked up on a thread of its own."""
        peer = self._peers.get(address)
        if peer is None:
            peer = self._peers[address] = PrefillPeer(address=address)
            self._lookups.submit(self._look_up, peer)
        return peer

    def _look_up(self, peer: PrefillPeer) -> None:
        """Runs on a lookup thread; the answer is posted to the engine thread."""
        host, port = peer.address
        deadline_s = time.monotonic() + self._settings.bootstrap_timeout_s
        try:
            server = find_prefill(host, port, deadline_s=deadline_s, stopped=self._stopped)
        except BootstrapError as error:
            self._post(partial(self._lose, peer, str(error), 503))
        else:
            self._post(partial(self._dial, peer, server))

    def _dial(self, peer: PrefillPeer, server: PrefillServer) -> None:
        fault = mismatch(prefill=Facts.of_server(server.shape), decode=self._facts)
        if fault is not None:
            _log.error("%s: %s", peer.name, fault)
            self._lose(peer, fault, 500)
            return
        peer.link_id = self._network.dial(server.rank_ip, server.rank_port)
        self._peer_of_link[peer.link_id] = peer

    def _lose(self, peer: PrefillPeer, reason: str, status: int) -> None:
        """Forget a peer and fail its rooms. The next request for its address starts from the beginning."""
        if self._peers.get(peer.address) is peer:
            del self._peers[peer.address]
        for room in list(peer.rooms):
            self._settle(room)
            self._room_of.pop(room.live, None)
            if room in self._wanting_pages:
                self._wanting_pages.remove(room)
            self._desk.end(room.live, abort(reason, status=status))
        peer.rooms.clear()

    # Links.

    def on_up(self, link_id: int) -> None:
        layout = self._model.layout
        self._network.send(
            link_id,
            Hello(
                version=PROTOCOL_VERSION,
                backend=self._settings.transfer_backend,
                num_layers=layout.num_layers,
                num_pages=layout.num_pages,
                page_size=layout.page_size,
                num_kv_heads=layout.num_kv_heads,
                head_dim=layout.head_dim,
                dtype=self._facts.dtype,
                endpoint=self._backend.endpoint(),
                verify_kv=self._settings.verify_kv,
            ),
        )

    def on_message(self, link_id: int, message: Message) -> None:
        peer = self._peer_of_link.get(link_id)
        if peer is None:
            return  # said before the link was given up
        match message:
            case Welcome():
                peer.is_ready = True
                self._wanting_pages.extend(sorted(peer.rooms, key=lambda room: room.deadline_s))
            case Refused():
                self._lose(peer, f"{peer.name} refused this decode instance: {message.reason}", 500)
                self._network.close_link(link_id, "refused")
            case RoomState() | RoomDone() | AbortDone():
                room = self._open.get(message.ticket)
                if room is not None and room.peer is peer:
                    self._on_room(room, message)
            case _:
                self._network.close_link(link_id, f"`{type(message).__name__}` is out of place here")

    def on_down(self, link_id: int, reason: str) -> None:
        peer = self._peer_of_link.pop(link_id, None)
        if peer is not None:
            self._lose(peer, f"lost {peer.name}: {reason}", 503)

    # Rooms.

    def _open_rooms(self, now_s: float) -> None:
        """Give pages to rooms in the order of their arrival, and tell prefill where they are."""
        while self._wanting_pages and self._desk.reserve(self._wanting_pages[0].live):
            room = self._wanting_pages.popleft()
            live, layout = room.live, self._model.layout
            pages = live.pages[: layout.num_pages_for(live.prompt_len)]
            room.ticket = secrets.randbits(63)
            room.state = KVPoll.WaitingForInput
            room.deadline_s = now_s + self._settings.waiting_timeout_s
            self._open[room.ticket] = room
            self._desk.hold(live)
            self._backend.allow(room.ticket, PageWindow(layout=layout, pages=frozenset(pages)))
            assert room.peer.link_id is not None
            self._network.send(
                room.peer.link_id,
                OpenRoom(room=room.room, ticket=room.ticket, prompt_len=live.prompt_len, pages=pages),
            )

    def _on_room(self, room: DecodeRoom, message: RoomState | RoomDone | AbortDone) -> None:
        if isinstance(message, RoomState) and message.state is not KVPoll.Failed:
            room.state = advance(room.state, message.state)
            return
        self._settle(room)
        if self._room_of.pop(room.live, None) is None:
            return  # it ended on our side, and this is the answer
        match message:
            case RoomDone():
                self._finish_transfer(room, message)
            case RoomState():
                self._desk.end(room.live, abort(f"{room.peer.name}: {message.reason}", status=503))
            case AbortDone():
                self._desk.end(room.live, abort(f"{room.peer.name} dropped the room", status=503))

    def _finish_transfer(self, room: DecodeRoom, done: RoomDone) -> None:
        live = room.live
        fault = self._find_damage(live, done)
        if fault is not None:
            _log.error("room %d: %s", room.room, fault)
            self._desk.end(live, abort(fault, status=500))
            return
        room.state = KVPoll.Success
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
        ours = layer_checksums(self._model.pool, self._model.layout, live.pages, live.prompt_len)
        layer = first_difference(ours, done.checksums)
        if layer is None:
            return None
        return f"the KV of layer {layer} is not what prefill sent: its checksum differs after the transfer"

    def _settle(self, room: DecodeRoom) -> None:
        """Nothing may write into the room's pages any more."""
        room.peer.rooms.discard(room)
        if room.ticket is None or self._open.pop(room.ticket, None) is None:
            return
        self._backend.revoke(room.ticket)
        self._desk.unhold(room.live)

    def _tell_given_up(self, peer: PrefillPeer, room: int, ticket: int | None, reason: str | None) -> None:
        if peer.is_ready and peer.link_id is not None:
            message = AbortRoom(room=room, ticket=ticket, reason=(reason or "")[:MAX_TEXT_LEN])
            self._network.send(peer.link_id, message)

    def _describe_timeout(self, room: DecodeRoom) -> str:
        settings = self._settings
        if room.ticket is not None:
            waited = f"{settings.waiting_timeout_s:g} s"
            return f"the KV of room {room.room} did not arrive from {room.peer.name} within {waited}"
        waited = f"{settings.bootstrap_timeout_s:g} s"
        if room.peer.is_ready:
            return f"no KV pages were free for room {room.room} within {waited}"
        return f"{room.peer.name} could not be reached within {waited}"
