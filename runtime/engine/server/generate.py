"""SGLang's own route: `POST /generate`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runtime.engine.request import Finish, FinishReason, TokenLogprob
from runtime.engine.server.answer import PlannedRequest
from runtime.engine.server.assembly import Piece
from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields, is_integer
from runtime.engine.server.generation import Generation, SequenceProgress
from runtime.engine.server.http import stream_event
from runtime.engine.server.prompts import Prompt, check_num_sequences, read_prompts, require_codec, tokenise
from runtime.engine.server.rendezvous import read_rendezvous
from runtime.engine.server.routed_rank import read_routed_rank
from runtime.engine.server.sampling_fields import SamplingRequest, read_sglang_sampling
from runtime.engine.server.sequences import SequencePlan, build_sequences, sequence_rids
from runtime.engine.server.state import Codec, ServerState

MAX_TOP_LOGPROBS = 128
MAX_RID_LEN = 256

_UNSUPPORTED: dict[str, tuple[Any, ...]] = {
    "input_embeds": (),
    "image_data": ([],),
    "video_data": ([],),
    "audio_data": ([],),
    "token_ids_logprob": ([],),
    "return_hidden_states": (False,),
    "session_params": ({},),
    "lora_path": ("",),
    "custom_logit_processor": ("",),
}


async def plan_generate(state: ServerState, body: Fields, request_id: str) -> PlannedRequest:
    """Check a body of `/generate`."""
    model = state.model
    body.refuse(_UNSUPPORTED)
    name, prompts, is_batch = _read_input(body)
    num_prompts = len(prompts)
    check_num_sequences(num_prompts)
    rids = _read_rids(body, request_id, num_prompts)
    routed_dp_rank = read_routed_rank(body, state.settings)
    rendezvous = read_rendezvous(body, state.settings, num_prompts=num_prompts)
    samplings = _read_samplings(body, num_prompts)
    num_top_logprobs = _read_logprobs(body, num_prompts)
    token_lists = await tokenise(name, prompts, model)
    plans = [
        SequencePlan(
            rid=rids[index],
            token_ids=token_lists[index],
            sampling=samplings[index],
            rendezvous=rendezvous[index],
            routed_dp_rank=routed_dp_rank,
            num_top_logprobs=num_top_logprobs[index],
        )
        for index in range(num_prompts)
    ]
    return PlannedRequest(
        request_id=request_id if num_prompts > 1 else rids[0],
        sequences=build_sequences(plans, state=state, model=model),
        form=_GenerateForm(
            is_batch=is_batch,
            token_text_codec=require_codec(model) if body.flag("return_text_in_logprobs") else None,
        ),
        is_stream=body.flag("stream"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _GenerateForm:
    """SGLang's answers. Each event of a stream repeats the text so far, as SGLang does by default."""

    is_batch: bool
    token_text_codec: Codec | None  # adds the text of each token to the logprobs

    def document(self, generation: Generation) -> Any:
        answers = [self._sequence(sequence, generation) for sequence in generation.sequences]
        return answers if self.is_batch else answers[0]

    def opening(self) -> bytes:
        return b""

    def part(self, index: int, piece: Piece, generation: Generation) -> bytes:
        event = self._sequence(generation.sequences[index], generation)
        if self.is_batch:
            event["index"] = index
        return stream_event(event)

    def closing(self, generation: Generation) -> bytes:
        return b""

    def _sequence(self, sequence: SequenceProgress, generation: Generation) -> dict[str, Any]:
        return {
            "text": sequence.text,
            "output_ids": sequence.token_ids,
            "meta_info": {
                "id": sequence.public_rid,
                "finish_reason": _finish_reason(sequence.finish, len(sequence.token_ids)),
                "prompt_tokens": sequence.num_prompt_tokens,
                "completion_tokens": len(sequence.token_ids),
                "cached_tokens": 0,
                "e2e_latency": generation.elapsed_s(),
                **self._logprobs(sequence),
            },
        }

    def _logprobs(self, sequence: SequenceProgress) -> dict[str, Any]:
        num_top = sequence.request.num_top_logprobs
        if num_top is None:
            return {}
        lists: dict[str, Any] = {
            "input_token_logprobs": [],  # a router adds prefill's list to decode's, so it must be there
            "output_token_logprobs": [
                self._triple(entry.token_id, entry.logprob) for entry in sequence.logprobs
            ],
        }
        if num_top:
            lists["input_top_logprobs"] = []
            lists["output_top_logprobs"] = [self._top(entry) for entry in sequence.logprobs]
        return lists

    def _top(self, entry: TokenLogprob) -> list[tuple[float, int, str | None]]:
        return [self._triple(token_id, logprob) for token_id, logprob in entry.top]

    def _triple(self, token_id: int, logprob: float) -> tuple[float, int, str | None]:
        text = self.token_text_codec.decode((token_id,)) if self.token_text_codec else None
        return logprob, token_id, text


def _finish_reason(finish: Finish | None, num_tokens: int) -> dict[str, Any] | None:
    if finish is None:
        return None
    if finish.reason is FinishReason.LENGTH:
        return {"type": "length", "length": num_tokens}
    if finish.reason is FinishReason.STOP:
        return {"type": "stop", "matched": finish.matched}
    return {"type": "abort", "message": finish.message}


def _read_input(body: Fields) -> tuple[str, list[Prompt], bool]:
    """Name of the field that holds the prompts, the prompts, and whether they came as a batch."""
    has_text, has_ids = body.raw("text") is not None, body.raw("input_ids") is not None
    if has_text == has_ids:
        raise RequestError(
            f"found {'both' if has_text else 'neither'} of `text` and `input_ids`, wanted exactly one",
            param="input_ids" if has_text else "text",
        )
    name = "text" if has_text else "input_ids"
    prompts, is_batch = read_prompts(name, body.raw(name), is_token_field=has_ids)
    return name, prompts, is_batch


def _read_rids(body: Fields, request_id: str, num_prompts: int) -> Sequence[str]:
    value = body.raw("rid")
    if value is None:
        return sequence_rids(request_id, num_prompts)
    rids = sequence_rids(value, num_prompts) if isinstance(value, str) else value
    is_right = isinstance(rids, list | tuple) and len(rids) == num_prompts and all(map(_is_rid, rids))
    if not is_right:
        raise body.wrong("rid", f"a string of at most {MAX_RID_LEN} characters, or one for each prompt")
    return rids


def _is_rid(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_RID_LEN


def _read_samplings(body: Fields, num_prompts: int) -> list[SamplingRequest]:
    value = body.raw("sampling_params")
    if not isinstance(value, list):
        return [read_sglang_sampling(body.child("sampling_params"))] * num_prompts
    if len(value) != num_prompts or not all(isinstance(item, dict) for item in value):
        raise body.wrong("sampling_params", f"an object, or a list of {num_prompts} objects")
    return [read_sglang_sampling(Fields(item, f"sampling_params[{i}].")) for i, item in enumerate(value)]


def _read_logprobs(body: Fields, num_prompts: int) -> list[int | None]:
    """For each prompt how many alternatives to report per token, None for no logprobs at all."""
    wants = _each(body, "return_logprob", num_prompts, False)
    starts = _each(body, "logprob_start_len", num_prompts, -1)
    tops = _each(body, "top_logprobs_num", num_prompts, 0)
    if not all(isinstance(want, bool) for want in wants):
        raise body.wrong("return_logprob", "true, false, or a list of these")
    if not all(is_integer(top) and 0 <= top <= MAX_TOP_LOGPROBS for top in tops):
        raise body.wrong("top_logprobs_num", f"an integer from 0 to {MAX_TOP_LOGPROBS}, or a list of these")
    if any(want and start != -1 for want, start in zip(wants, starts, strict=True)):
        raise body.wrong("logprob_start_len", "-1: this engine gives logprobs of generated tokens only")
    return [top if want else None for want, top in zip(wants, tops, strict=True)]


def _each(body: Fields, key: str, num_prompts: int, default: Any) -> list[Any]:
    value = body.raw(key)
    if not isinstance(value, list):
        return [default if value is None else value] * num_prompts
    if len(value) != num_prompts:
        raise body.wrong(key, f"one value, or a list of {num_prompts}")
    return value
