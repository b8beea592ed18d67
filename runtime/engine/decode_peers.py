"""The prefill servers that a decode engine knows: looked up, dialled, greeted, and listened to.

A peer is known by the bootstrap address in the request. The first request for an address pays for the way
to it; when the link is lost the peer is forgotten, and the next request begins anew.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from runtime.bootstrap.client import BootstrapError, PrefillServer, TokenRefusedError, find_prefill
from runtime.bootstrap.token import Token
from runtime.control.compat import Facts, mismatch
from runtime.control.messages import AbortDone, Hello, Message, Refused, RoomDone, RoomState, Welcome
from runtime.control.network import ControlNetwork
from runtime.engine.mailbox import Post, PostedLinks

NUM_LOOKUP_THREADS = 16

Address = tuple[str, int]  # of a bootstrap server
RoomMessage = RoomState | RoomDone | AbortDone

_log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True, eq=False)
class PrefillPeer:
    """A prefill server on the way from its bootstrap address to a welcomed link."""

    address: Address
    link_id: int | None = None  # None while the bootstrap server is asked
    is_ready: bool = False  # it has said `Welcome`
    unsent: list[Message] = field(default_factory=list)  # what it is told then

    @property
    def name(self) -> str:
        return f"the prefill instance {self.address[0]}:{self.address[1]}"


class DecodeRooms(Protocol):
    """Who is told about peers. Called on the engine thread."""

    def on_ready(self, peer: PrefillPeer) -> None: ...

    def on_room(self, peer: PrefillPeer, message: RoomMessage) -> None: ...

    def on_lost(self, peer: PrefillPeer, reason: str, status: int) -> None:
        """The peer is forgotten; `status` is for the requests that counted on it. May come twice."""
        ...


class PrefillPeers:
    """A `LinkListener` on the engine thread; look-ups run on threads of their own, since they may hang."""

    def __init__(
        self,
        rooms: DecodeRooms,
        *,
        hello: Hello,
        facts: Facts,
        post: Post,
        token: Token | None,
        lookup_timeout_s: float,
        heartbeat_interval_s: float,
    ) -> None:
        self._rooms = rooms
        self._hello = hello
        self._facts = facts
        self._post = post
        self._token = token
        self._lookup_timeout_s = lookup_timeout_s
        self._by_address: dict[Address, PrefillPeer] = {}
        self._by_link: dict[int, PrefillPeer] = {}
        self._lookups = ThreadPoolExecutor(NUM_LOOKUP_THREADS, thread_name_prefix="bootstrap-lookup")
        self._stopped = threading.Event()
        self._network = ControlNetwork(PostedLinks(post, self), heartbeat_interval_s=heartbeat_interval_s)

    def __len__(self) -> int:
        return len(self._by_link)

    def find(self, address: Address) -> PrefillPeer:
        """The peer at a bootstrap address. `on_ready` or `on_lost` follows, unless it is ready."""
        peer = self._by_address.get(address)
        if peer is None:
            peer = self._by_address[address] = PrefillPeer(address=address)
            self._lookups.submit(self._look_up, peer)
        return peer

    def send(self, peer: PrefillPeer, message: Message) -> None:
        """Tell a peer something, at once or when it is ready. A lost peer is told nothing."""
        if peer.is_ready and peer.link_id is not None:
            self._network.send(peer.link_id, message)
        elif self._by_address.get(peer.address) is peer:
            peer.unsent.append(message)

    def close(self) -> None:
        self._stopped.set()
        self._network.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)

    def on_up(self, link_id: int) -> None:
        self._network.send(link_id, self._hello)

    def on_message(self, link_id: int, message: Message) -> None:
        peer = self._by_link.get(link_id)
        if peer is None:
            return  # said before the link was given up
        match message:
            case Welcome():
                peer.is_ready = True
                for unsent in peer.unsent:
                    self._network.send(link_id, unsent)
                peer.unsent.clear()
                self._rooms.on_ready(peer)
            case Refused():
                self._lose(peer, f"{peer.name} refused this decode instance: {message.reason}", 500)
                self._network.close_link(link_id, "refused")
            case RoomState() | RoomDone() | AbortDone():
                self._rooms.on_room(peer, message)
            case _:
                self._network.close_link(link_id, f"`{type(message).__name__}` is out of place here")

    def on_down(self, link_id: int, reason: str) -> None:
        peer = self._by_link.pop(link_id, None)
        if peer is not None:
            self._lose(peer, f"lost {peer.name}: {reason}", 503)

    def _look_up(self, peer: PrefillPeer) -> None:
        """Runs on a look-up thread; the answer is posted to the engine thread."""
        host, port = peer.address
        deadline_s = time.monotonic() + self._lookup_timeout_s
        try:
            server = find_prefill(host, port, deadline_s=deadline_s, stopped=self._stopped, token=self._token)
        except TokenRefusedError as error:
            self._post(partial(self._lose, peer, str(error), 500))  # another try would end no better
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
        self._by_link[peer.link_id] = peer

    def _lose(self, peer: PrefillPeer, reason: str, status: int) -> None:
        peer.is_ready = False
        if self._by_address.get(peer.address) is peer:
            del self._by_address[peer.address]
        self._rooms.on_lost(peer, reason, status)
