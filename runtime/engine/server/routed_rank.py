"""Which attention-DP rank a caller wants: `routed_dp_rank`, as SGLang 0.5.23 reads it."""

from __future__ import annotations

from runtime.engine.server.errors import RequestError
from runtime.engine.server.fields import Fields, is_integer
from runtime.engine.settings import EngineSettings

HEADER = b"x-data-parallel-rank"  # of OpenAI's routes, before what the body says
_FIELDS = (
    "routed_dp_rank",
    "data_parallel_rank",
)  # the second is the older name, which routers still pass on


def with_header(body: Fields, header: str | None) -> Fields:
    """The body with the rank that the header names, if it names one."""
    if header is None:
        return body
    try:
        rank = int(header)
    except ValueError as error:
        raise RequestError(
            f"Invalid X-Data-Parallel-Rank header: must be an integer, got '{header}'"
        ) from error
    return Fields({**body.values, "routed_dp_rank": rank}, body.prefix)


def read_routed_rank(body: Fields, settings: EngineSettings) -> int | None:
    """None leaves it to the engine."""
    for name in _FIELDS:
        rank = body.raw(name)
        if rank is None:
            continue
        if not is_integer(rank):
            raise body.wrong(name, "an integer")
        if not 0 <= rank < settings.attn_dp_size:
            raise RequestError(f"{name}={rank} out of range [0, {settings.attn_dp_size})", param=name)
        return rank
    return None
