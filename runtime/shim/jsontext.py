"""JSON through the C half of the standard library's `json`.

The Python half loads `re`, and `enum` for that: more CPU than a bare interpreter's start, for options that
the shim doesn't use. Whatever the C half can't do, or does not have in some Python, `json` itself does.
"""

from __future__ import annotations

try:
    from _json import encode_basestring_ascii, make_encoder, make_scanner
except ImportError:  # another implementation of Python
    make_scanner = make_encoder = encode_basestring_ascii = None

_BLANKS = " \t\n\r"


class _Reading:
    """The options of `json.JSONDecoder`, at their defaults."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    array_hook = None
    parse_float = float
    parse_int = int

    @staticmethod
    def parse_constant(name: str) -> float:
        return float(name.replace("Infinity", "inf"))


def loads(text: str | bytes) -> object:
    """As `json.loads`; `ValueError` where it is not JSON."""
    if not text:
        raise ValueError("it is empty")
    if _SCAN is not None:
        try:
            words = (text if isinstance(text, str) else text.decode("utf-8")).strip(_BLANKS)
            value, end = _SCAN(words, 0)
            if end == len(words):
                return value
        except (StopIteration, ValueError, SystemError):  # the last: no `json` to take its error from
            pass
    import json

    return json.loads(text)


def dumps(value: object) -> str:
    """As `json.dumps`."""
    if _ENCODE is not None:
        return "".join(_ENCODE(value, 0))
    import json

    return json.dumps(value)


def _unknown(value: object) -> object:
    raise TypeError("JSON has no %s" % type(value).__name__)


def _made(make, *arguments):
    """None where this Python's differs."""
    try:
        return make(*arguments)
    except (TypeError, AttributeError):
        return None


_SCAN = _made(make_scanner, _Reading)
_ENCODE = _made(
    make_encoder, None, _unknown, encode_basestring_ascii, None, ": ", ", ", False, False, True
)  # no mark of what was seen, indent, separators; then: sort, skip keys, allow NaN
