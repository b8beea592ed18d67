"""Flags in `args` against the table of the engine's version."""

from __future__ import annotations

import pytest

from pdctl.diagnostics import Diagnostic
from pdctl.rules import flags, passed_on
from pdctl.topology.load import load_text
from pdctl.topology.model import Topology


def topology(args: str, *, version: str | None = "0.5.23", place: str = "defaults") -> Topology:
    stated = "" if version is None else f', version: "{version}"'
    router = "router: {kind: sglang_router}\n" if place != "router" else ""
    block = f"{place}: {{{'kind: sglang_router, ' if place == 'router' else ''}args: {{{args}}}}}\n"
    roles = "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if role != place)
    return load_text(
        f"schema: pdctl/v1\nname: demo\nmodel: {{path: x}}\nengine: {{kind: sglang{stated}}}\n"
        f"transfer: {{backend: mooncake}}\n{router}{block}{roles}"
    ).require()


def found(args: str, *, version: str | None = "0.5.23", place: str = "defaults") -> list[Diagnostic]:
    checked = topology(args, version=version, place=place)
    rules = (*flags.RULES, *passed_on.RULES)
    return [each for rule in rules for each in rule.check(checked)]


def one(args: str, *, version: str | None = "0.5.23", place: str = "defaults") -> Diagnostic:
    (diagnostic,) = found(args, version=version, place=place)
    return diagnostic


@pytest.mark.parametrize(
    "args",
    [
        "chunked-prefill-size: -1, mem-fraction-static: 0.85, context-length: 64k",
        "trust-remote-code: true, enable-metrics: false, quantization: null",
        "moe-a2a-backend: deepep, deepep-mode: low_latency, page-size: '64'",
        "cuda-graph-bs-decode: [1, 2, 4], cuda-graph-bs-prefill: 8",
        "json-model-override-args: {a: 1}, preferred-sampling-params: {top_k: 1}, forward-hooks: [{name: a}]",
        "enable-tf32-matmul: false, no-enable-fused-qk-norm-rope: true",
        "lora-paths: [a, {lora_name: b, lora_path: c}]",
        "cuda-graph-config: 'decode=full'",
    ],
)
@pytest.mark.parametrize("place", ["defaults", "prefill", "decode"])
def test_flags_that_the_engine_takes_pass_without_a_word(args: str, place: str) -> None:
    assert found(args, place=place) == []


def test_flags_that_the_router_takes_pass_without_a_word() -> None:
    args = "retry-max-retries: 3, cache-threshold: 0.5, disable-retries: true, log-level: debug"
    assert found(args, place="router") == []


@pytest.mark.parametrize(
    ("args", "version", "message", "note", "help"),
    [
        (
            "context-lenght: 1",
            "0.5.23",
            "sglang 0.5.23 has no flag `context-lenght`",
            None,
            "did you mean `context-length`?",
        ),
        (
            "cuda-graph-max-bs: 1",
            "0.5.23",
            "sglang 0.5.23 has no flag `cuda-graph-max-bs`",
            "removed: sglang 0.5.19 is the last release that has it",
            "use `cuda-graph-max-bs-decode`",
        ),
        (
            "enable-deepep-moe: true",
            "0.5.23",
            "sglang 0.5.23 has no flag `enable-deepep-moe`",
            "removed: sglang 0.5.3 is the last release that has it",
            "use `moe-a2a-backend: deepep`",
        ),
        (
            "enable-piecewise-cuda-graph: true",  # renamed, and then replaced by a value of another
            "0.5.23",
            "sglang 0.5.23 has no flag `enable-piecewise-cuda-graph`",
            "removed: sglang 0.5.13 is the last release that has it",
            "use `cuda-graph-backend-prefill: tc_piecewise`",
        ),
        (
            "enable-pd-role-switch: true",
            "0.5.9",
            "sglang 0.5.9 has no flag `enable-pd-role-switch`",
            "sglang 0.5.21 is the first release that has it",
            None,
        ),
        (
            "enable-hi: true",
            "0.5.23",
            "`enable-hi` could be any of 3 flags of sglang 0.5.23",
            None,
            "write one of `enable-hicache`, `enable-hierarchical-cache`, `enable-hisparse`",
        ),
    ],
)
def test_an_unknown_flag_comes_with_its_past_and_its_future(
    args: str, version: str, message: str, note: str | None, help: str | None
) -> None:
    told = one(args, version=version)
    assert (told.code, told.severity, told.message) == ("PD230", "error", message)
    assert [each.startswith(note or "") for each in told.notes] == ([] if note is None else [True])
    if help is not None:
        assert told.help == help


@pytest.mark.parametrize("version", ["0.5.9", "0.5.12.post1"])
def test_a_flag_may_be_called_by_its_later_name(version: str) -> None:
    assert found("cuda-graph-max-bs-decode: 64, dsa-prefill-backend: fa3", version=version) == []
    assert one("cuda-graph-max-bs-decode: many", version=version).code == "PD233"


def test_a_version_without_a_table_turns_faults_into_warnings() -> None:
    version, unknown = found("context-lenght: 1", version="0.5.21")[::-1]
    assert (version.code, version.severity, version.path) == ("PD237", "warning", "engine.version")
    assert "sglang 0.5.20" in version.notes[0]
    assert (unknown.code, unknown.severity) == ("PD230", "warning")


def test_releases_around_a_version_without_a_table_tell_that_it_has_a_flag() -> None:
    told = found("enable-session-radix-cache: true, enable-pd-role-switch: true", version="0.5.22")
    assert {each.code for each in told} == {"PD237"}


def test_a_version_that_is_not_stated_is_taken_for_the_newest_and_never_refused() -> None:
    told = one("page-size: many", version=None)
    assert (told.code, told.severity, told.notes) == ("PD233", "warning", ("by the flags of sglang 0.5.23",))


@pytest.mark.parametrize(
    ("version", "told"),
    [
        ("", ["warning PD233"]),
        ('version: "0.3.2", ', ["error PD233"]),
        ('version: "0.3.3", ', ["warning PD233", "warning PD237"]),
        ('version: "0.2.0", ', ["warning PD233", "warning PD237"]),
    ],
)
def test_a_stated_version_of_the_router_makes_faults_of_its_flags_errors(
    version: str, told: list[str]
) -> None:
    router = f"router: {{kind: sglang_router, {version}args: {{retry-max-retries: many}}}}\n"
    checked = load_text(
        "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: sglang}\n"
        f"transfer: {{backend: mooncake}}\nprefill: {{}}\ndecode: {{}}\n{router}"
    ).require()
    assert [f"{each.severity} {each.code}" for rule in flags.RULES for each in rule.check(checked)] == told


def test_the_routers_version_is_not_stated_so_its_flags_are_never_refused() -> None:
    told = one("retry-max-retries: many", place="router")
    assert (told.code, told.severity) == ("PD233", "warning")


def test_an_abbreviation_is_a_warning_and_its_value_is_checked() -> None:
    short, value = found("page-siz: many")
    assert (short.code, short.severity, short.help) == ("PD231", "warning", "write `page-size`")
    assert (value.code, value.message) == ("PD233", "`page-size` takes an integer, found `many`")


def test_two_aliases_in_one_block_are_one_flag() -> None:
    told = one("hierarchical-sparse-attention-extra-config: a, hisparse-config: b")
    assert (told.code, told.severity, told.help) == ("PD232", "error", "keep one of them, `hisparse-config`")


def test_a_retired_flag_beside_its_successor_is_a_warning() -> None:
    told = [
        each
        for each in found("cuda-graph-max-bs: 1, cuda-graph-max-bs-decode: 2", version="0.5.17")
        if each.code == "PD232"
    ]
    assert [(each.severity, each.help) for each in told] == [
        ("warning", "keep one of them, `cuda-graph-max-bs-decode`")
    ]


def test_a_flag_that_is_left_out_is_no_second_one() -> None:
    assert found("hierarchical-sparse-attention-extra-config: a, hisparse-config: false") == []


@pytest.mark.parametrize(
    ("args", "code", "severity", "path"),
    [
        ("moe-a2a-backend: deepp", "PD234", "error", "defaults.args.moe-a2a-backend"),
        ("attention-backend: fa9", "PD234", "warning", "defaults.args.attention-backend"),
        ("trust-remote-code: 1", "PD235", "error", "defaults.args.trust-remote-code"),
        ("cuda-graph-bs-decode: [1, two]", "PD233", "error", "defaults.args.cuda-graph-bs-decode.1"),
        ("enable-flashinfer-allreduce-fusion: true", "PD236", "warning", None),
    ],
)
def test_a_value_that_does_not_fit_is_marked_where_it_stands(
    args: str, code: str, severity: str, path: str | None
) -> None:
    told = one(args)
    assert (told.code, told.severity) == (code, severity)
    assert told.path == (path or "defaults.args.enable-flashinfer-allreduce-fusion")


@pytest.mark.parametrize(
    ("args", "help"),
    [
        ("tensor-parallel-size: 2", "remove it, and set `parallel.tp` under `prefill` and `decode`"),
        ("tensor-par: 2", "remove it, and set `parallel.tp` under `prefill` and `decode`"),
        ("model: x", "remove it, and set `model.path`"),
        ("nccl-init-addr: x", "remove it: it follows from the rest of the topology"),
        ("disaggregation-boot: 9000", "remove it, and set `prefill.bootstrap_port`"),
    ],
)
def test_an_owned_flag_is_known_by_any_of_its_names(args: str, help: str) -> None:
    told = one(args)
    assert (told.code, told.help) == ("PD220", help)


def test_an_engine_without_tables_is_left_alone() -> None:
    text = "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: reference, version: '9'}\n"
    checked = load_text(f"{text}prefill: {{args: {{anything: [1]}}}}\ndecode: {{}}\n").require()
    assert [each for rule in flags.RULES for each in rule.check(checked)] == []
