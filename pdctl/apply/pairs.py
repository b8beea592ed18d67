"""Prove that each prefill instance hands its KV cache to each decode instance.

A router chooses pairs by itself, so the requests don't pass it: both halves get the rendezvous that a router
would write, each from its own node.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pdctl.apply.canary import NUM_TOKENS, PROMPT, TIMEOUT_S, answered_text, why_not
from pdctl.clock import Clock
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink, Verified, Verifying
from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.plan.model import Instance, LaunchPlan, RoleKind

PAIRS_AT_ONCE = 64
MAX_TOLD = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    prefill: Instance
    decode: Instance

    def __str__(self) -> str:
        return f"`{self.prefill.id}` with `{self.decode.id}`"


def run_pairs(plan: LaunchPlan, nodes: NodeAccess, *, sink: EventSink, clock: Clock) -> None:
    """One generation over each pair. Raises `DiagnosticError` with all pairs that failed."""
    pairs = [
        Pair(prefill=prefill, decode=decode)
        for prefill in _of(plan, RoleKind.PREFILL)
        for decode in _of(plan, RoleKind.DECODE)
    ]
    sink.on(Verifying(url=f"each of {len(pairs)} pairs of prefill and decode"))
    began = clock.now()
    failed: list[str] = []
    text = ""
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        group = pairs[start : start + PAIRS_AT_ONCE]
        answers = nodes.probe([request for pair in group for request in _requests(plan, pair)])
        for pair, prefill, decode in zip(group, answers[::2], answers[1::2], strict=True):
            fault = _fault(prefill, decode)
            if fault is None:
                text = answered_text(decode) or text
            else:
                failed.append(f"{pair}: {fault}")
    if failed:
        raise DiagnosticError.one(
            "PD613",
            f"{len(failed)} of {len(pairs)} pairs of prefill and decode can't serve a request",
            notes=tuple(_shortened(failed)),
            help="suspect what carries the KV cache between these nodes; `pdctl doctor` looks at it",
        )
    sink.on(Verified(text=text, elapsed_s=clock.now() - began))


def _of(plan: LaunchPlan, role: RoleKind) -> list[Instance]:
    return [instance for instance in plan.instances if instance.role is role]


def _requests(plan: LaunchPlan, pair: Pair) -> tuple[ProbeRequest, ProbeRequest]:
    """The same body for both halves; the room is what lets them find each other."""
    bootstrap = pair.prefill.bootstrap
    body = {
        "text": PROMPT,
        "sampling_params": {"max_new_tokens": NUM_TOKENS, "temperature": 0},
        "bootstrap_host": pair.prefill.http.host,
        "bootstrap_port": None if bootstrap is None else bootstrap.port,
        "bootstrap_room": random.getrandbits(63),
    }
    content = json.dumps(body).encode()
    return _request(plan, pair.prefill, content), _request(plan, pair.decode, content)


def _request(plan: LaunchPlan, instance: Instance, content: bytes) -> ProbeRequest:
    leader = plan.process(instance.process_ids[0])
    assert leader is not None, "an instance names its own processes"
    return ProbeRequest(
        node=leader.node,
        url=f"http://{instance.http}/generate",
        method="POST",
        body=content,
        timeout_s=TIMEOUT_S,
    )


def _fault(prefill: ProbeAnswer, decode: ProbeAnswer) -> str | None:
    if prefill.status == 200 and answered_text(decode) is not None:
        return None
    failed = [("prefill", prefill)] if prefill.status != 200 else []
    failed += [("decode", decode)] if answered_text(decode) is None else []
    return ", ".join(f"{role} answered {why_not(answer)}" for role, answer in failed)


def _shortened(failed: Sequence[str]) -> Iterator[str]:
    yield from failed[:MAX_TOLD]
    if len(failed) > MAX_TOLD:
        yield f"and {len(failed) - MAX_TOLD} more"
