"""Flags in `args`: who owns them, how they are spelled."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl import plugins
from pdctl.rules import check
from pdctl.topology.load import load_text

Found = Callable[..., list[str]]


def hints(lines: str) -> list[str | None]:
    text = "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: reference}\n" + lines
    text += "".join(f"{role}: {{}}\n" for role in ("prefill", "decode") if f"{role}:" not in lines)
    return [each.help for each in check(load_text(text).require()) if each.code in ("PD220", "PD221")]


def test_flags_that_nobody_owns_are_passed_on(found: Found) -> None:
    lines = "defaults: {args: {page-size: 16}}\nrouter: {args: {request-timeout-secs: 60}}\n"
    assert found(lines, "PD220") == []
    assert found(lines, "PD221") == []


def test_every_owned_flag_of_the_engine_is_refused_in_every_place(found: Found) -> None:
    engine = plugins.program("engines", "reference")
    assert engine is not None
    for flag in engine.owned_flags:
        for place in ("defaults", "prefill", "decode"):
            (fault,) = found(f"{place}: {{args: {{{flag}: 1}}}}\n", "PD220")
            assert fault.endswith(f"pdctl derives `{flag}` itself")


def test_a_router_owns_other_flags_than_an_engine(found: Found) -> None:
    assert len(found("router: {args: {policy: random, port: 1, model-path: x}}\n", "PD220")) == 2


@pytest.mark.parametrize(
    "spelling", ["--served-model-name", "served_model_name", "--served_model_name", "-served-model-name"]
)
def test_an_owned_flag_is_known_in_any_spelling_and_reported_once(found: Found, spelling: str) -> None:
    lines = f"decode: {{args: {{{spelling}: x}}}}\n"
    assert len(found(lines, "PD220")) == 1
    assert found(lines, "PD221") == []


@pytest.mark.parametrize(
    ("lines", "hint"),
    [
        ("defaults: {args: {served-model-name: x}}\n", "remove it, and set `model.served_name`"),
        ("defaults: {args: {port: 1}}\n", "remove it, and set `port` under `prefill` and `decode`"),
        ("decode: {args: {port: 1}}\n", "remove it, and set `port` under `decode`"),
        ("decode: {args: {disaggregation-mode: x}}\n", "remove it: it follows from the rest of the topology"),
        ("router: {args: {host: x}}\n", "remove it, and set `router.host`"),
        ("decode: {args: {--page-size: 1}}\n", "write `page-size`"),
        ("decode: {args: {max_running_requests: 1}}\n", "write `max-running-requests`"),
    ],
)
def test_the_hint_names_the_field_to_use(lines: str, hint: str) -> None:
    assert hint in hints(lines)


def test_an_unknown_engine_is_reported_by_another_rule(found: Found) -> None:
    assert found("decode: {args: {port: 1}}\n", "PD220", engine="other") == []
    assert found("decode: {args: {--a: 1}}\n", "PD221", engine="other") != []


@pytest.mark.parametrize(
    ("lines", "is_told"),
    [
        ("prefill: {env: {HF_TOKEN: hf_x}}\n", True),
        ("router: {env: {WANDB_API_KEY: x}}\n", True),
        ("decode: {args: {api-key: sk-x}}\n", True),
        ("prefill: {env: {HF_TOKEN: ''}}\n", False),
        ("decode: {args: {max-total-tokens: 4096}}\n", False),
        ("prefill: {env: {TOKENIZERS_PARALLELISM: 'false'}}\n", False),
    ],
)
def test_secrets_stand_elsewhere(found: Found, lines: str, is_told: bool) -> None:
    assert bool(found(lines, "PD340", engine="sglang")) == is_told


@pytest.mark.parametrize(
    ("value", "is_told"),
    [
        ("/opt/x:$LD_LIBRARY_PATH", True),
        ("$(LWS_LEADER_ADDRESS):5000", True),
        ("~/x", True),
        ("/opt/x:~/lib", True),
        ("$5", False),
        ("a~b", False),
        ("$${HOME}", False),  # a plain `${HOME}`, asked for
    ],
)
def test_nothing_is_left_to_a_shell(found: Found, value: str, is_told: bool) -> None:
    assert bool(found(f"prefill: {{env: {{A: '{value}'}}}}\n", "PD346")) == is_told


def test_flags_with_a_field_or_another_place_are_sent_there(
    hints: Callable[[str, str], list[str | None]],
) -> None:
    lines = "engine: {kind: sglang}\ndefaults: {args: {config: x.yaml}}\n"
    lines += "router: {kind: sglang_router, args: {api-key: x, prometheus-port: 1}}\n"
    assert hints(lines, "PD220") == [
        "remove it, and write the flags of that file under `defaults.args`",
        "remove it, and set `router.api_key_env`",
        "remove it, and set `router.metrics_port`",
    ]
