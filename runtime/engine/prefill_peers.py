"""The decode instances that are linked to a prefill engine: who they are, and what they say."""

from __future__ import annotations

import logging
from dataclasses import dataclass
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
from runtime.engine.ranks.commands import ConnectAsked
from runtime.engine.ranks.group import GroupKV
from runtime.kv.reshard import ReshardError
from runtime.transfer.base import TransferError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecodePeer:
    """A decode instance that was welcomed. To the ranks here, `link_id` is its name."""

    link_id: int
    attn_dp_size: int
    num_pages: int  # of one of its ranks
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
        facts: Facts,
        kv: GroupKV,
        backend_name: str,
        post: Post,
        heartbeat_interval_s: float,
    ) -> None:
        self._rooms = rooms
        self._facts = facts
        self._kv = kv
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
            self._kv.disconnect(peer.link_id)

    def _greet(self, link_id: int, hello: Hello) -> None:
        fault = hello_mismatch(hello, self._facts, backend=self._backend_name)
        if fault is not None:
            self._refuse(link_id, fault)
            return
        ranks = ConnectAsked(
            peer_id=link_id,
            attn_tp_size=hello.attn_tp_size,
            attn_dp_size=hello.attn_dp_size,
            num_pages=hello.num_pages,
            endpoints=hello.endpoints,
        )
        try:
            self._kv.connect(ranks)
        except (TransferError, ReshardError) as error:
            self._refuse(link_id, str(error))
            return
        self._peers[link_id] = DecodePeer(
            link_id=link_id,
            attn_dp_size=hello.attn_dp_size,
            num_pages=hello.num_pages,
            wants_checksums=hello.verify_kv,
        )
        self._network.send(link_id, Welcome(version=PROTOCOL_VERSION))

    def _refuse(self, link_id: int, fault: str) -> None:
        _log.error("refusing a decode instance: %s", fault)
        self._network.send(link_id, Refused(reason=fault))
        self._network.close_link(link_id, "refused")
