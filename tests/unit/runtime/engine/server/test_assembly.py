"""From token events to text, with one token per byte."""

from __future__ import annotations

from runtime.engine.request import Finish, FinishReason, TokenEvent, TokenLogprob
from runtime.engine.server.assembly import Piece, TextAssembly, joined

LENGTH = Finish(reason=FinishReason.LENGTH)


class Latin1Decoder:
    """Holds the last byte back until the next one comes, as a decoder holds half a character."""

    def __init__(self):
        self._held = ""

    def push(self, token_ids):
        text = self._held + bytes(token_ids).decode("latin-1")
        self._held = text[-1:]
        return text[:-1]

    def flush(self):
        return self._held


def assembly(*stops, keep_stop=False):
    return TextAssembly(decoder=Latin1Decoder(), stop_strings=stops, keep_stop=keep_stop)


def event(text, finish=None):
    token_ids = tuple(text.encode("latin-1"))
    logprobs = tuple(TokenLogprob(token_id=token, logprob=-1.0) for token in token_ids)
    return TokenEvent(rid="r", token_ids=token_ids, logprobs=logprobs, finish=finish)


def test_the_end_releases_what_the_decoder_and_the_matcher_held_back():
    sequence = assembly("</s>")
    assert sequence.push(event("one<")).text == "one"
    assert sequence.push(event("/", LENGTH)) == Piece(
        text="</",
        token_ids=(ord("/"),),
        logprobs=(TokenLogprob(token_id=ord("/"), logprob=-1.0),),
        finish=LENGTH,
    )


def test_tokens_after_the_stop_string_are_dropped_with_their_logprobs():
    piece = assembly("ST").push(event("aSTbcd"))
    assert piece.text == "a"
    assert piece.token_ids == tuple(b"aSTb"), "the decoder gave the T only with the b"
    assert len(piece.logprobs) == 4
    assert piece.finish == Finish(reason=FinishReason.STOP, matched="ST")


def test_a_stop_string_that_completes_in_the_last_held_bytes_counts():
    piece = assembly("ST").push(event("aST", LENGTH))
    assert (piece.text, piece.finish) == ("a", Finish(reason=FinishReason.STOP, matched="ST"))


def test_the_token_that_stopped_is_not_shown_unless_it_is_kept():
    stopped = Finish(reason=FinishReason.STOP, matched=ord("!"))
    assert assembly().push(event("a!", stopped)).text == "a"
    assert assembly(keep_stop=True).push(event("a!", stopped)).text == "a!"


def test_a_finish_without_tokens_keeps_the_text():
    sequence = assembly()
    sequence.push(event("ab"))
    aborted = Finish(reason=FinishReason.ABORT, message="gone", status=503)
    assert sequence.push(TokenEvent(rid="r", finish=aborted)) == Piece(text="b", finish=aborted)


def test_without_a_tokenizer_there_are_tokens_and_no_text():
    sequence = TextAssembly(decoder=None, stop_strings=("a",), keep_stop=False)
    assert sequence.push(event("aa", LENGTH)).text == ""


def test_joined_pieces_are_one_that_ends_as_the_last_does():
    whole = joined([Piece(text="a", token_ids=(1,)), Piece(text="b", token_ids=(2, 3), finish=LENGTH)])
    assert whole == Piece(text="ab", token_ids=(1, 2, 3), finish=LENGTH)
