"""From the engine's token events to text: detokenise, match stop strings, cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from runtime.engine.request import Finish, FinishReason, TokenEvent, TokenLogprob
from runtime.engine.server.stop import StopMatcher


class TextDecoder(Protocol):
    """Turns token ids into text as they come, never half a character."""

    def push(self, token_ids: Sequence[int]) -> str: ...

    def flush(self) -> str:
        """Text of the bytes still held, incomplete characters as U+FFFD."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one or more events added to a sequence. `text` may lag behind `token_ids`: see `StopMatcher`."""

    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()
    finish: Finish | None = None


class TextAssembly:
    """The text of one sequence. Without a tokenizer the text stays empty and stop strings can't match."""

    def __init__(self, *, decoder: TextDecoder | None, stop_strings: Sequence[str], keep_stop: bool) -> None:
        self._decoder = decoder
        self._matcher = StopMatcher(stop_strings, keep_match=keep_stop)
        self._keep_stop = keep_stop

    def push(self, event: TokenEvent) -> Piece:
        """Add an event. A piece that has `finish` while the event had none ended at a stop string."""
        scan_text, matched, num_tokens = self._scan(event)
        if matched is not None:
            return Piece(
                text=scan_text,
                token_ids=event.token_ids[:num_tokens],
                logprobs=event.logprobs[:num_tokens],
                finish=Finish(reason=FinishReason.STOP, matched=matched),
            )
        piece = Piece(token_ids=event.token_ids, logprobs=event.logprobs, text=scan_text)
        return piece if event.finish is None else self._finished(piece, event.finish)

    def _scan(self, event: TokenEvent) -> tuple[str, str | None, int]:
        """Text to show, the stop string that matched, how many of the event's tokens it took."""
        if self._decoder is None:
            return "", None, len(event.token_ids)
        token_ids = event.token_ids[:-1] if self._hides_last_token(event) else event.token_ids
        texts: list[str] = []
        # One by one: a stop string may end at any token, and those after it don't belong to the answer.
        for position, token_id in enumerate(token_ids):
            scan = self._matcher.push(self._decoder.push((token_id,)))
            texts.append(scan.text)
            if scan.matched is not None:
                return "".join(texts), scan.matched, position + 1
        return "".join(texts), None, len(event.token_ids)

    def _hides_last_token(self, event: TokenEvent) -> bool:
        """A token that ended the sequence is no part of its text, be it a special one or any stop token."""
        finish = event.finish
        return (
            finish is not None
            and isinstance(finish.matched, int)
            and event.token_ids[-1:] == (finish.matched,)
            and not self._keep_stop
        )

    def _finished(self, piece: Piece, finish: Finish) -> Piece:
        """Release what was held back; bytes that only now become text may still complete a stop string."""
        scan = self._matcher.push(self._decoder.flush() if self._decoder else "")
        if scan.matched is not None:
            finish = Finish(reason=FinishReason.STOP, matched=scan.matched)
            return replace(piece, text=piece.text + scan.text, finish=finish)
        return replace(piece, text=piece.text + scan.text + self._matcher.flush(), finish=finish)


def joined(pieces: Sequence[Piece]) -> Piece:
    """Neighbouring pieces of one sequence as one."""
    if len(pieces) == 1:
        return pieces[0]
    return Piece(
        text="".join(piece.text for piece in pieces),
        token_ids=tuple(token for piece in pieces for token in piece.token_ids),
        logprobs=tuple(entry for piece in pieces for entry in piece.logprobs),
        finish=pieces[-1].finish if pieces else None,
    )
