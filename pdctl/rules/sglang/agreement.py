"""Settings that SGLang compares between prefill and decode, or that garble KV where nobody compares them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product

from pdctl.diagnostics import Diagnostic, Severity
from pdctl.program import Rule
from pdctl.rules.base import Stated, at_value, line_of, stated_arg
from pdctl.rules.pairing import agree
from pdctl.rules.sglang.processes import Variables, process_variables
from pdctl.rules.sglang.reading import backend_of, is_at_most, word
from pdctl.rules.sglang.speculation import algorithm_of
from pdctl.topology.model import ArgValue, Role, Topology

_LAST_MORI_WITHOUT_COUNT = "0.5.12.post1"  # from 0.5.13 on, MoRI compares the number of state components

# Backends with published deployments that draft on decode alone (InferenceX, B200 and B300 recipes).
_ONE_SIDED_DRAFTING = frozenset({"nixl"})

_DRAFTS_WITHOUT_KV = frozenset({"NGRAM"})  # srt/speculative/spec_info.py, has_draft_kv

# The last release that compares nothing: dtypes may go by two names. Later ones compare the words
# (srt/disaggregation/common/conn.py, try_ensure_parallel_info).
_LAST_WITHOUT_DTYPE_CHECK = "0.5.9"
_SAME_DTYPES = {"bfloat16": "bf16"}

_TRUE, _FALSE = ("true", "1", "yes", "y"), ("false", "0", "no", "n")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shared:
    """A setting that both roles must have alike."""

    name: str
    is_env: bool = False
    default: str | None = None  # what the engine takes; None: not known here, so one side alone is a warning
    consequence: str = "both start well, and the first request fails or the transfer never connects"


# sglang srt/disaggregation/common/conn.py (try_ensure_parallel_info, allocation policy), the handshake of
# staging, sampling masks (arg_groups/validation_hook.py), and the transports of Mooncake and NIXL.
_SHARED = (
    _Shared(name="disaggregation-decode-allocation-policy", default="early"),
    _Shared(name="dsv4-attn-backend"),
    _Shared(name="enable-unified-memory", default="false"),
    _Shared(
        name="revision",
        default="main",
        consequence="decode goes on from the KV cache of other weights: wrong text, no error",
    ),
    _Shared(name="sampling-mask-max-tokens"),
    _Shared(name="SGLANG_DSV4_KV_LAYOUT", is_env=True),
    _Shared(name="SGLANG_ENABLE_DISAGG_SAMPLING_MASK", is_env=True, default="false"),
    _Shared(name="SGLANG_DISAGG_STAGING_BUFFER", is_env=True, default="false"),
    _Shared(name="SGLANG_DISAGGREGATION_NIXL_BACKEND", is_env=True, default="ucx"),
    _Shared(name="SGLANG_MOONCAKE_CUSTOM_MEM_POOL", is_env=True, default="false"),
    _Shared(name="MOONCAKE_PROTOCOL", is_env=True, default="rdma"),
    _Shared(name="MC_FORCE_TCP", is_env=True, default="unset"),
    _Shared(name="MC_FORCE_MNNVL", is_env=True, default="unset"),
    _Shared(name="MC_INTRANODE_NVLINK", is_env=True, default="unset"),
    _Shared(name="ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE", is_env=True, default="false"),
    _Shared(name="ASCEND_MF_STORE_URL", is_env=True),
)


_Values = tuple[tuple[Stated | None, ...], tuple[Stated | None, ...]]  # of prefill and of decode processes


def _kv_dtypes_agree(topology: Topology) -> Iterable[Diagnostic]:
    """`auto` is another dtype for some models and checkpoints, so against a stated one it may be right."""
    stated = (stated_arg(topology, role, "kv-cache-dtype") for role in topology.roles)
    prefill, decode = ("auto" if each is None else str(each.value) for each in stated)
    is_one = _SAME_DTYPES.get(prefill, prefill) == _SAME_DTYPES.get(decode, decode)
    if prefill == decode or (is_one and is_at_most(topology, _LAST_WITHOUT_DTYPE_CHECK)):
        return ()
    return agree(
        topology,
        flag="kv-cache-dtype",
        code="PD310",
        message=f"`{prefill}` and `{decode}` are different dtypes to SGLang"
        if is_one
        else "prefill and decode{may} keep their KV cache in different dtypes",
        consequence="SGLang from 0.5.10 on aborts the first request; older ones answer with wrong text",
        left_open="auto",
    )


def _shared_settings_agree(topology: Topology) -> Iterable[Diagnostic]:
    names = tuple(setting.name for setting in _SHARED if setting.is_env)
    variables = tuple(process_variables(topology, role, *names) for role in topology.roles)
    for setting in _SHARED:
        differing = _first_difference(_values(topology, setting, variables), setting)
        if differing is None:
            continue
        prefill, decode = differing
        marked = decode or prefill
        assert marked is not None  # two roles that say nothing take the same default
        other = prefill if decode is not None else None
        yield at_value(
            topology,
            marked.path,
            "PD313",
            f"prefill and decode differ in `{setting.name}`",
            severity=Severity.WARNING if other is None and setting.default is None else Severity.ERROR,
            notes=(
                _other_side(topology, other, setting),
                setting.consequence,
            ),
            help=f"set it once, under `defaults.{'env' if setting.is_env else 'args'}`",
        )


def _first_difference(values: _Values, setting: _Shared) -> tuple[Stated | None, Stated | None] | None:
    """What a prefill and a decode process have that isn't the same; None where all have it alike."""
    pairs = product(*values)
    return next((pair for pair in pairs if _form(pair[0], setting) != _form(pair[1], setting)), None)


def _values(topology: Topology, setting: _Shared, variables: Sequence[Sequence[Variables]]) -> _Values:
    prefill, decode = (
        tuple(dict.fromkeys(of_process.get(setting.name) for of_process in of_role))
        if setting.is_env
        else (stated_arg(topology, role, setting.name),)
        for role, of_role in zip(topology.roles, variables, strict=True)
    )
    return prefill, decode


def _form(stated: Stated | None, setting: _Shared) -> ArgValue:
    if stated is None:
        return setting.default
    lowered = str(stated.value).strip().lower()
    if setting.default == "unset":
        return (
            lowered  # such variables are tested for presence: `0` is as good as `1`, but never equals absence
        )
    return "true" if lowered in _TRUE else "false" if lowered in _FALSE else lowered


def _other_side(topology: Topology, other: Stated | None, setting: _Shared) -> str:
    if other is not None:
        return f"prefill has {other.value}: {line_of(topology, other.path)}"
    if setting.default is None:
        return "the other side takes what the engine chooses"
    return f"the other side takes {setting.default}"


def _both_draft(topology: Topology) -> Iterable[Diagnostic]:
    prefill, decode = (_drafting(topology, role) for role in topology.roles)
    backend = backend_of(topology)
    if (prefill is None) == (decode is None) or backend in _ONE_SIDED_DRAFTING:
        return
    marked = prefill if decode is None else decode
    assert marked is not None  # one of them drafts
    is_refused = backend == "mori" and not is_at_most(topology, _LAST_MORI_WITHOUT_COUNT)
    role, other = topology.roles if decode is None else reversed(topology.roles)
    without_kv = algorithm_of(topology, other)
    does = "does without" if without_kv is None else f"drafts by {without_kv.value}, which has no KV"
    yield at_value(
        topology,
        marked.path,
        "PD314",
        f"{role.name} drafts by {marked.value}, and {other.name} {does}",
        severity=Severity.ERROR if is_refused else Severity.WARNING,
        notes=(
            "the draft model has KV of its own, which prefill must make and decode must expect",
            "MoRI refuses the transfer" if is_refused else "drafts without it are worse, and may be wrong",
        ),
        help="set the speculative flags under `defaults.args`; step counts may differ by role",
    )


def _drafting(topology: Topology, role: Role) -> Stated | None:
    """Where a role drafts with KV of its own."""
    stated = algorithm_of(topology, role)
    return None if (word(stated) or "").upper() in _DRAFTS_WITHOUT_KV else stated


RULES = (
    Rule(code="PD310", check=_kv_dtypes_agree),
    Rule(code="PD313", check=_shared_settings_agree),
    Rule(code="PD314", check=_both_draft),
)
