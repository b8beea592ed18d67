"""What a misspelt word probably meant."""

from __future__ import annotations

from collections.abc import Iterable

_MAX_LISTED = 12

# How much of two words must be alike. One slip in a short word is much of it: `UXC` for `UCX`.
_CUTOFF, _CUTOFF_OF_SHORT, _SHORT_LEN = 0.7, 0.6, 4


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` most likely stands for; `_`, `-` and case never make the difference."""
    import difflib  # only documents with a fault pay for it

    by_form = {_form(each): each for each in known}
    cutoff = _CUTOFF_OF_SHORT if len(word) <= _SHORT_LEN else _CUTOFF
    found = difflib.get_close_matches(_form(word), list(by_form), n=1, cutoff=cutoff)
    return by_form[found[0]] if found else None


def suggest(word: str, known: Iterable[str]) -> str | None:
    """A hint: the nearest known word, or all of them when none is near."""
    known = tuple(known)
    found = nearest(word, known)
    if found is not None:
        return f"did you mean `{found}`?"
    if not known:
        return None
    listed = ", ".join(f"`{each}`" for each in known[:_MAX_LISTED])
    return f"known here: {listed}" + (", …" if len(known) > _MAX_LISTED else "")


def _form(word: str) -> str:
    return word.lower().replace("_", "-")
