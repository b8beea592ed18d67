"""The one error of everything that reads a model from disk."""

from __future__ import annotations


class ModelError(Exception):
    """A model that cannot be served, said in one sentence for the person who chose it."""
