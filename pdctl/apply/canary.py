"""Prove that a deployment serves: one real generation through its router."""

from __future__ import annotations

import json

from pdctl.clock import Clock
from pdctl.diagnostics import DiagnosticError
from pdctl.events import EventSink, Verified, Verifying
from pdctl.executors.base import NodeAccess
from pdctl.executors.calls import ProbeAnswer, ProbeRequest
from pdctl.fields import FieldError, parse_fields
from pdctl.plan.model import LaunchPlan

PROMPT = "The capital of France is"
NUM_TOKENS = 8
TIMEOUT_S = 120.0
# A router may have seen its workers only a moment ago, so a refusal is asked again for a while.
PATIENCE_S = 15.0
RETRY_EVERY_S = 0.5


def run_canary(plan: LaunchPlan, nodes: NodeAccess, *, sink: EventSink, clock: Clock) -> None:
    """Ask for a few tokens. Raises `DiagnosticError` when no answer with text comes back."""
    router = next(process for process in plan.processes if process.instance_id == plan.router.id)
    url = f"http://{plan.router.http}/generate"
    body = {"text": PROMPT, "sampling_params": {"max_new_tokens": NUM_TOKENS, "temperature": 0}}
    request = ProbeRequest(
        node=router.node, url=url, method="POST", body=json.dumps(body).encode(), timeout_s=TIMEOUT_S
    )
    sink.on(Verifying(url=url))
    began = clock.now()
    while True:
        (answer,) = nodes.probe([request])
        text = answered_text(answer)
        if text is not None:
            sink.on(Verified(text=text, elapsed_s=clock.now() - began))
            return
        if answer.status != 503 or clock.now() - began > PATIENCE_S:
            raise DiagnosticError.one(
                "PD606",
                f"the deployment is up, but a request through its router failed: {why_not(answer)}",
                notes=(f"`POST {url}` asked for {NUM_TOKENS} tokens", "all processes still run"),
                help=f"look at `pdctl logs --name {plan.name}`",
            )
        clock.sleep(RETRY_EVERY_S)


def answered_text(answer: ProbeAnswer) -> str | None:
    """What was generated; None for any other answer."""
    if answer.status != 200:
        return None
    try:
        return parse_fields("the answer", answer.body.encode()).text("text")
    except FieldError:
        return None


def why_not(answer: ProbeAnswer) -> str:
    if answer.status is None:
        return answer.error or "no answer"
    return f"HTTP {answer.status}: {answer.body[:300].strip()}"
