"""Stop strings, matched on text that arrives in pieces."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# Bounds what one request can make every later token cost; OpenAI allows 4 stop strings.
MAX_STOP_STRINGS = 256
MAX_STOP_CHARS = 65_536  # of all stop strings of one request together


@dataclass(frozen=True, slots=True, kw_only=True)
class StopScan:
    """`text` is safe to show; `matched` is the stop string that ended the text, if one did."""

    text: str
    matched: str | None = None


class StopMatcher:
    """Cuts a text at the stop string that completes first, whatever the pieces it arrives in.

    Every stop string that is partly seen keeps how many of its characters the text ends with (Knuth, Morris
    and Pratt). So a character costs constant time per partly seen string, however long the strings are, and
    the longest such prefix is exactly what must be held back: it may be the beginning of a stop string.
    """

    def __init__(self, stop_strings: Sequence[str], *, keep_match: bool = False) -> None:
        """`keep_match` leaves the stop string in the text (SGLang's `no_stop_trim`)."""
        # Longest first: of two that complete with the same character, the longer began earlier.
        self._strings = sorted(set(stop_strings), key=len, reverse=True)
        self._fallbacks = [_fallback_lens(text) for text in self._strings]
        self._starters: dict[str, list[int]] = {}
        for index, text in enumerate(self._strings):
            self._starters.setdefault(text[0], []).append(index)
        self._seen_lens: dict[
            int, int
        ] = {}  # stop string -> its characters that the text ends with; no zeros
        self._held = ""
        self._keep_match = keep_match

    def push(self, piece: str) -> StopScan:
        """Take the next characters. After a match the matcher must not be used again."""
        if not self._strings or not piece:
            return StopScan(text=piece)
        text = self._held + piece
        for position in range(len(self._held), len(text)):
            matched = self._advance(text[position])
            if matched is not None:
                end = position + 1
                return StopScan(text=text[: end if self._keep_match else end - len(matched)], matched=matched)
        num_held = max(self._seen_lens.values(), default=0)
        self._held = text[len(text) - num_held :]
        return StopScan(text=text[: len(text) - num_held])

    def flush(self) -> str:
        """The text held back, once it is sure that no more comes."""
        held, self._held = self._held, ""
        self._seen_lens.clear()
        return held

    def _advance(self, char: str) -> str | None:
        """Move every partly seen stop string on by one character; the one that is complete now, if any."""
        seen_lens: dict[int, int] = {}
        candidates = [
            *self._seen_lens,
            *(i for i in self._starters.get(char, ()) if i not in self._seen_lens),
        ]
        complete: int | None = None
        for index in candidates:
            text, fallbacks = self._strings[index], self._fallbacks[index]
            seen_len = self._seen_lens.get(index, 0)
            while seen_len and text[seen_len] != char:
                seen_len = fallbacks[seen_len - 1]
            if text[seen_len] == char:
                seen_len += 1
            if seen_len == len(text):
                complete = index if complete is None else min(complete, index)
            elif seen_len:
                seen_lens[index] = seen_len
        self._seen_lens = seen_lens
        return None if complete is None else self._strings[complete]


def _fallback_lens(text: str) -> list[int]:
    """For each prefix of `text`, the length of its longest proper suffix that is also a prefix."""
    lens = [0] * len(text)
    matched_len = 0
    for position in range(1, len(text)):
        while matched_len and text[position] != text[matched_len]:
            matched_len = lens[matched_len - 1]
        if text[position] == text[matched_len]:
            matched_len += 1
        lens[position] = matched_len
    return lens
