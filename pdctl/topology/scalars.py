"""What type a word without quotes has.

The core schema of YAML 1.2, not the YAML 1.1 of PyYAML: `on`, `off`, `yes`, `no`, `04:00:00` and dates are
text, `010` is ten. Two departures, both towards text: `.inf` and `.nan` name no size that a topology could
have, and nobody means a number that is too large for a double or longer than 18 digits.
"""

from __future__ import annotations

import math
import re

from pdctl.topology.tree import ScalarValue

_WORDS: dict[str, bool | None] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_DECIMAL = re.compile(r"[-+]?[0-9]{1,18}")
_OCTAL = re.compile(r"0o[0-7]{1,18}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,15}")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_MAX_FLOAT_LEN = 40


def resolve_plain(text: str) -> ScalarValue:
    if text in _WORDS:
        return _WORDS[text]
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _OCTAL.fullmatch(text):
        return int(text[2:], 8)
    if _HEX.fullmatch(text):
        return int(text[2:], 16)
    if len(text) <= _MAX_FLOAT_LEN and _FLOAT.fullmatch(text) and not text.lstrip("-+").isdigit():
        number = float(text)
        return number if math.isfinite(number) else text
    return text
