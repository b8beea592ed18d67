"""What can go wrong with a built-in model, said with its remedy."""

from __future__ import annotations


class ModelError(Exception):
    """A fault the user can mend: `message` says what is so, `hint` what to do."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\nhint: {self.hint}"


class ModelUnavailable(ModelError):
    """The model is not known, not in the cache, or damaged there."""


class FetchFailed(ModelError):
    """The model could not be brought into the cache."""
