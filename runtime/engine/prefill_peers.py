"""The decode instances that are linked to a prefill engine: who they are, and what they say."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Protocol

from runtime.control.compat import Facts, hello_mismatch
from runtime.control.messages import (
    PROTOCOL_VERSION,
    AbortRoom,
    Hello,
    Message,
    OpenRoom,
    Refused,
    Welcome,
)
from runtime.control.network import ControlNetwork
from runtime.engine.mailbox import Post, PostedLinks
from runtime.kv.layout import KVLayout
from runtime.transfer.base import SendSession, TransferBackend, TransferError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodePeer:
    """A decode instance that was welcomed."""

    link_id: int
    layout: KVLayout
    session: SendSession
    wants_checksums: bool


class PrefillRooms(Protocol):
    """Who is told what decode instances say about rooms. Called on the engine thread."""

    def on_open(self, peer: DecodePeer, message: OpenRoom) -> None: ...

    def on_abort(self, peer: DecodePeer, message: AbortRoom) -> None: ...

    def on_lost(self, peer: DecodePeer, reason: str) -> None: ...


class DecodePeers:
    """Greets links, and passes on what peers say about rooms. A `LinkListener` on the engine thread."""

    def __init__(
        self,
        rooms: PrefillRooms,
        *,
        layout: KVLayout,
        facts: Facts,
        backend: TransferBackend,
        backend_name: str,
        post: Post,
        heartbeat_interval_s: float,
    ) -> None:
        self._rooms = rooms
        self._layout = layout
        self._facts = facts
        self._backend = backend
        self._backend_name = backend_name
        self._peers: dict[int, DecodePeer] = {}
        self._network = ControlNetwork(PostedLinks(post, self), heartbeat_interval_s=heartbeat_interval_s)

    def __len__(self) -> int:
        return len(self._peers)

    def listen(self, host: str) -> int:
        return self._network.listen(host)

    def send(self, peer: DecodePeer, message: Message) -> None:
        self._network.send(peer.link_id, message)

    def close(self) -> None:
        self._network.close()

    def on_up(self, link_id: int) -> None:
        pass  # decode speaks first

    def on_message(self, link_id: int, message: Message) -> None:
        peer = self._peers.get(link_id)
        match message:
            case Hello() if peer is None:
                self._greet(link_id, message)
            case OpenRoom() if peer is not None:
                self._rooms.on_open(peer, message)
            case AbortRoom() if peer is not None:
                self._rooms.on_abort(peer, message)
            case _:
                self._network.close_link(link_id, f"`{type(message).__name__}` is out of place here")

    def on_down(self, link_id: int, reason: str) -> None:
        peer = self._peers.pop(link_id, None)
        if peer is not None:
            self._rooms.on_lost(peer, reason)
            peer.session.close()

    def _greet(self, link_id: int, hello: Hello) -> None:
        fault = hello_mismatch(hello, self._facts, backend=self._backend_name)
        if fault is not None:
            self._refuse(link_id, fault)
            return
        try:
            session = self._backend.connect(hello.endpoint)
        except TransferError as error:
            self._refuse(link_id, str(error))
            return
        self._peers[link_id] = DecodePeer(
            link_id=link_id,
            layout=replace(self._layout, num_pages=hello.num_pages),
            session=session,
            wants_checksums=hello.verify_kv,
        )
        self._network.send(link_id, Welcome(version=PROTOCOL_VERSION))

    def _refuse(self, link_id: int, fault: str) -> None:
        _log.error("refusing a decode instance: %s", fault)
        self._network.send(link_id, Refused(reason=fault))
        self._network.close_link(link_id, "refused")
