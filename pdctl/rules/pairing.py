"""What prefill and decode must agree on. Where they differ, all starts well and then fails."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, line_of, stated_arg
from pdctl.topology.model import Args, ArgValue, Topology

# What an engine takes where the document says nothing. A test holds it to the engines here.
ENGINE_DEFAULTS: Mapping[str, Args] = {"reference": {"page-size": 16, "dtype": "float32"}}


# Whose decode admits a request and holds pages for it while prefill refuses it (InferenceX #2257, #2293).
_ENGINES_THAT_WAIT = frozenset({"sglang"})

# Whose attention backends have a say in the page size: their own rules ask first what both sides end up with.
_ENGINES_WITH_PAGES_OF_THEIR_OWN = frozenset({"sglang"})


def _dtypes_agree(topology: Topology) -> Iterable[Diagnostic]:
    return agree(
        topology,
        flag="dtype",
        code="PD301",
        message="prefill and decode{may} compute in different dtypes",
        consequence="the bytes of prefill's KV cache are other numbers to decode: wrong text, no error",
    )


def _page_sizes_agree(topology: Topology) -> Iterable[Diagnostic]:
    if topology.engine.kind in _ENGINES_WITH_PAGES_OF_THEIR_OWN:
        return ()
    return page_sizes_agree(topology)


def page_sizes_agree(topology: Topology) -> Iterable[Diagnostic]:
    """What the document states for either role; an engine's default is looked up where it is known here."""
    return agree(
        topology,
        flag="page-size",
        code="PD302",
        message="prefill and decode{may} use different page sizes",
        consequence="requests fail or hang when decode reads the layout of prefill's pages",
    )


def agree(
    topology: Topology, *, flag: str, code: str, message: str, consequence: str, left_open: str | None = None
) -> Iterable[Diagnostic]:
    """An error where the roles are given different values, a warning where one of them isn't known here.

    `{may}` in `message` is where a warning says so; `left_open` is the word for the engine's own choice.
    """
    prefill, decode = (
        None if stated is not None and stated.value == left_open else stated
        for stated in (stated_arg(topology, role, flag) for role in topology.roles)
    )
    default = ENGINE_DEFAULTS.get(topology.engine.kind, {}).get(flag)
    takes_prefill = default if prefill is None else prefill.value
    takes_decode = default if decode is None else decode.value
    if takes_prefill == takes_decode:
        return
    # The mark goes to decode's value, the note to prefill's; where decode says nothing, the other way round.
    marked, marked_role = (decode, "decode") if decode is not None else (prefill, "prefill")
    other, other_role = (prefill, "prefill") if decode is not None else (None, "decode")
    assert marked is not None  # two roles that say nothing take the same default
    # Against a default that isn't known here, one side's value may be the right one.
    is_unsure = other is None and default is None
    yield at_value(
        topology,
        marked.path,
        code,
        message.format(may=" may" if is_unsure else ""),
        severity=Severity.WARNING if is_unsure else Severity.ERROR,
        label=marked_role,
        notes=(_other_takes(topology, other, other_role, default), consequence),
        help=f"set `{flag}` once, under `defaults.args`",
    )


def _other_takes(topology: Topology, other: Stated | None, role: str, default: ArgValue) -> str:
    if other is not None:
        return f"{role} takes {other.value}: {line_of(topology, other.path)}"
    if default is None:
        return f"{role} takes the default of its engine"
    return f"{role} takes {default}, the default of the {topology.engine.kind} engine"


def _context_lengths_agree(topology: Topology) -> Iterable[Diagnostic]:
    """Decode alone may set a length, below the model's own: then it is the shorter one, by intent."""
    prefill = stated_arg(topology, topology.prefill, "context-length")
    decode = stated_arg(topology, topology.decode, "context-length")
    if prefill is None or _value(prefill) == _value(decode):
        return
    longest = topology.facts.context_length if decode is None else _tokens(decode)
    prefill_longest = _tokens(prefill)
    is_longer = longest is None or prefill_longest is None or longest > prefill_longest
    if decode is None and not is_longer:
        return  # prefill takes all that the model can
    takes = "the model's own" if decode is None else str(decode.value)
    marked = prefill if decode is None else decode
    is_refused = topology.engine.kind in _ENGINES_THAT_WAIT and is_longer
    yield at_value(
        topology,
        marked.path,
        "PD306",
        f"context length is {prefill.value} on prefill and {takes} on decode",
        severity=Severity.ERROR if is_refused else Severity.WARNING,
        notes=(
            "a request that only one side accepts leaves the other waiting until its time-out",
            f"prefill says it at {line_of(topology, prefill.path)}",
        ),
        help="set `context-length` once, under `defaults.args`"
        if is_longer
        else f"keep requests within {takes} tokens, or set `context-length` once, under `defaults.args`",
    )


def _decode_has_no_bootstrap_port(topology: Topology) -> Iterable[Diagnostic]:
    if topology.decode.bootstrap_port is not None:
        yield at_value(
            topology,
            ("decode", "bootstrap_port"),
            "PD304",
            "decode instances run no bootstrap server",
            notes=("prefill announces itself on its own, and the router tells decode where",),
            help="remove it, or set `prefill.bootstrap_port`",
        )


def _tokens(stated: Stated) -> int | None:
    return stated.value if isinstance(stated.value, int) else None


def _value(stated: Stated | None) -> object:
    return None if stated is None else stated.value


RULES = (
    Rule(code="PD301", check=_dtypes_agree),
    Rule(code="PD302", check=_page_sizes_agree),
    Rule(code="PD304", check=_decode_has_no_bootstrap_port),
    Rule(code="PD306", check=_context_lengths_agree),
)
