"""The secret that a bootstrap server may want from whoever calls it: read from a file, never from argv."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from pathlib import Path

MAX_TOKEN_BYTES = 4096


class TokenError(Exception):
    """No token can be read; the text names the file, and nothing of what is in it."""


@dataclass(frozen=True, slots=True)
class Token:
    """Prints as nothing: it must not get into logs and tracebacks."""

    _secret: str = field(repr=False)

    def header(self) -> str:
        """The value of `Authorization` that shows it."""
        return f"Bearer {self._secret}"

    def is_shown_by(self, header: str | None) -> bool:
        """Takes as long for one wrong letter as for many."""
        return hmac.compare_digest((header or "").encode(), self.header().encode())


def read_token(path: str) -> Token:
    """The one word that a file holds. Raises TokenError."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MAX_TOKEN_BYTES + 1)
    except OSError as error:
        raise TokenError(f"cannot read the bootstrap token: {error}") from error
    secret = content.strip()
    if not secret or len(content) > MAX_TOKEN_BYTES:
        raise TokenError(
            f"the bootstrap token in {path} has {len(content)} bytes, wanted 1 to {MAX_TOKEN_BYTES}"
        )
    if not all(0x21 <= byte < 0x7F for byte in secret):
        raise TokenError(f"the bootstrap token in {path} must be one word of printable ASCII")
    return Token(secret.decode("ascii"))
