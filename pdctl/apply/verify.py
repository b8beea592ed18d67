"""How far a deployment must prove that it serves."""

from __future__ import annotations

from enum import StrEnum


class Verify(StrEnum):
    ROUTER = "router"  # one generation through the router
    PAIRS = "pairs"  # and one over each pair of a prefill and a decode instance
