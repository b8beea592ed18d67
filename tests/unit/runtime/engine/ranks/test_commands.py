from __future__ import annotations

import pytest

from runtime.control.schema import MessageError
from runtime.engine.compute import Chunk
from runtime.engine.ranks.commands import (
    COMMANDS,
    AllowAsked,
    CancelSends,
    ChecksumAsked,
    ConnectAsked,
    DescribeAsked,
    Disconnect,
    Invitation,
    Revoke,
    SendPages,
    Step,
    Stop,
)

_ALL = [
    Invitation(host="10.0.0.1", port=4000, token=2**63 - 1),
    Step(chunks=(Chunk((5, 6), 0, (1, 2)), Chunk((7,), 9, (3,), 1))),
    DescribeAsked(),
    AllowAsked(ticket=1, attn_dp_rank=3, pages=(4, 5)),
    Revoke(report_id=9, ticket=1, attn_dp_rank=3),
    ConnectAsked(peer_id=1, attn_tp_size=2, attn_dp_size=1, num_pages=64, endpoints=(b"\xff", b"")),
    Disconnect(peer_id=1),
    SendPages(report_id=2, peer_id=1, ticket=3, src_dp_rank=0, dst_dp_rank=1, src_pages=(1,), dst_pages=(2,)),
    CancelSends(peer_id=1, ticket=3),
    ChecksumAsked(attn_dp_rank=0, pages=(1,), num_tokens=5),
    Stop(),
]


@pytest.mark.parametrize("command", _ALL, ids=lambda command: type(command).__name__)
def test_a_command_arrives_as_it_left(command):
    assert COMMANDS.unpack(COMMANDS.pack(command)) == command


@pytest.mark.parametrize("body", [b"", b"\x80", b"\x91\xa4nope", b"\x92\xa4step\x91\x01"])
def test_anything_else_is_no_command(body):
    with pytest.raises(MessageError):
        COMMANDS.unpack(body)
