"""Where a worker answers, as the command line says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit


class Role(StrEnum):
    """Which half of a request a worker computes."""

    PREFILL = "prefill"
    DECODE = "decode"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerAddress:
    """Where one worker answers, and for prefill where its bootstrap server does."""

    role: Role
    url: str  # as given, without a trailing slash
    host: str  # without the brackets of an IPv6 address
    port: int
    bootstrap_port: int | None = None  # None: decode falls back to its own default

    @property
    def authority(self) -> str:
        """What goes into the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_prefill(values: Sequence[str]) -> WorkerAddress:
    """Read `URL [BOOTSTRAP_PORT]`, where the port may be the word `none`."""
    if len(values) > 2:
        raise ValueError(
            f"`--prefill` takes a URL and at most one bootstrap port, found {len(values)} values"
        )
    if len(values) == 1 or values[1].lower() == "none":
        return parse_worker_url(values[0], Role.PREFILL)
    if not values[1].isdecimal() or not 0 < int(values[1]) < 65536:
        raise ValueError(
            f"`--prefill {values[0]}`: bootstrap port must be 1 to 65535 or `none`, found `{values[1]}`"
        )
    return parse_worker_url(values[0], Role.PREFILL, int(values[1]))


def parse_worker_url(url: str, role: Role, bootstrap_port: int | None = None) -> WorkerAddress:
    """Read `http://HOST:PORT`; anything more would be dropped silently, so it is refused."""
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname:
        raise ValueError(f"`--{role} {url}`: wanted http://HOST:PORT")
    if parts.path not in ("", "/") or parts.query or parts.fragment or parts.username:
        raise ValueError(f"`--{role} {url}`: wanted http://HOST:PORT and nothing after it")
    try:
        port = parts.port or 80
    except ValueError as error:
        raise ValueError(f"`--{role} {url}`: {error}") from error
    return WorkerAddress(
        role=role, url=url.rstrip("/"), host=parts.hostname, port=port, bootstrap_port=bootstrap_port
    )
