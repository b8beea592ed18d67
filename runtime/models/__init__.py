"""Built-in models: names, hashes, the cache, the fetch. Standard library only.

A model path `builtin:NAME` stands for a file in the user's cache. `resolve` finds it and never fetches: an
engine that starts must not wait for the network. `python -m runtime.models pull NAME` fetches.
"""

from runtime.models.cache import is_builtin, resolve
from runtime.models.errors import FetchFailed, ModelError, ModelUnavailable

__all__ = ["FetchFailed", "ModelError", "ModelUnavailable", "is_builtin", "resolve"]
