"""The C half of `signal`.

The Python half turns numbers into enums. Loading `enum` and what that needs costs as much CPU as a bare
interpreter's start, and most calls of the shim need little more than that start.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would cost as much again
if TYPE_CHECKING:
    import signal
else:
    try:
        import _signal as signal
    except ImportError:  # another implementation of Python
        import signal

__all__ = ("signal",)
