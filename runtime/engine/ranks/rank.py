"""What every rank of an engine does when the leader says so: the leader's own part, too."""

from __future__ import annotations

from runtime.engine.compute import Runner
from runtime.engine.ranks.commands import (
    AllowAsked,
    Asked,
    CancelSends,
    ChecksumAsked,
    ConnectAsked,
    DescribeAsked,
    Disconnect,
    Revoke,
    SendPages,
    Step,
    Told,
)
from runtime.engine.ranks.kv import RankKV


class Rank:
    """One rank's model, and its KV where the engine exchanges any."""

    def __init__(self, runner: Runner, kv: RankKV | None) -> None:
        self._runner = runner
        self._kv = kv

    def do(self, command: Told) -> None:
        if isinstance(command, Step):
            self._runner.forward(command.chunks)
            return
        assert self._kv is not None, "only engines that exchange KV are told about it"
        match command:
            case SendPages():
                self._kv.send(command)
            case Revoke():
                self._kv.revoke(command)
            case CancelSends():
                self._kv.cancel(command)
            case Disconnect():
                self._kv.disconnect(command)
            case _:
                raise TypeError(f"`{type(command).__name__}` is not for the rank itself")

    def answer(self, command: Asked) -> bytes:
        assert self._kv is not None, "only engines that exchange KV are asked about it"
        match command:
            case DescribeAsked():
                return self._kv.describe()
            case AllowAsked():
                self._kv.allow(command)
                return b""
            case ConnectAsked():
                return self._kv.connect(command).encode()
            case ChecksumAsked():
                return self._kv.checksums(command)

    def close(self) -> None:
        if self._kv is not None:
            self._kv.close()
