"""From token ids to text while they come: never half a character, and in the end the text of all at once."""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer as RustTokenizer

_REPLACEMENT = "�"
_MAX_INCOMPLETE = 3  # bytes of a UTF-8 character that may be there without its last one


class IncrementalDecoder:
    """The text of one growing sequence. Not thread-safe; make one per sequence."""

    def __init__(self, tokenizer: RustTokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        # Decoders of the SentencePiece kind treat the first token of a text differently: so each window
        # begins with the tokens of the one before, whose text is out already.
        self._window: list[int] = []
        self._num_context_tokens = 0
        self._num_emitted = 0  # characters of the window's text

    def push(self, token_ids: Sequence[int]) -> str:
        """Add tokens; give the text that no later token can change any more, perhaps none."""
        text = ""
        for token_id in token_ids:
            self._window.append(token_id)
            text += self._advance()
        return text

    def flush(self) -> str:
        """End the sequence: the text still held, incomplete characters as U+FFFD."""
        text = self._decode(self._window)
        held = text[self._num_emitted :]
        self._num_emitted = len(text)
        return held

    def _advance(self) -> str:
        text = self._decode(self._window)
        stable_len = _stable_len(text)
        new_text = text[self._num_emitted : stable_len]
        self._num_emitted = max(self._num_emitted, stable_len)
        if stable_len == len(text):
            self._move_window()
        return new_text

    def _move_window(self) -> None:
        """Everything is out: keep the newest tokens as context and forget the rest."""
        newest = self._window[self._num_context_tokens :]
        if not self._decode(newest):
            return  # special tokens alone would be no context
        self._window = newest
        self._num_context_tokens = len(newest)
        self._num_emitted = len(self._decode(newest))

    def _decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(token_ids, skip_special_tokens=self._skip_special_tokens)


def _stable_len(text: str) -> int:
    """Length without the U+FFFD at the end that may still become a character."""
    num_held = len(text) - len(text.rstrip(_REPLACEMENT))
    return len(text) - min(num_held, _MAX_INCOMPLETE)
