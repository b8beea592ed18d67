"""What prefill and decode must agree on."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.models.resolve import with_facts
from pdctl.rules import check
from pdctl.rules.pairing import ENGINE_DEFAULTS
from pdctl.topology.load import load_text
from runtime.engine.settings import parse_settings

Found = Callable[..., list[str]]

DIFFER = "prefill and decode use different page sizes"


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "defaults: {args: {page-size: 64}}\n",
        "prefill: {args: {page-size: 64}}\ndecode: {args: {page-size: 64}}\n",
        "defaults: {args: {page-size: 64}}\ndecode: {args: {page-size: 64}}\n",
        "decode: {args: {page-size: 16}}\n",  # what prefill takes by default
        "decode: {args: {page-size: '16'}}\n",  # the program reads text
        "prefill: {args: {page-size: 64}}\ndecode: {args: {page-size: ['64']}}\n",
    ],
)
def test_equal_page_sizes_are_fine_however_they_are_said(found: Found, lines: str) -> None:
    assert found(lines, "PD302") == []


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("prefill: {args: {page-size: 16}}\ndecode: {args: {page-size: 64}}\n", "2:28"),
        ("defaults: {args: {page-size: 64}}\nprefill: {args: {page-size: 16}}\n", "1:30"),
        ("prefill: {args: {page-size: 64}}\n", "1:29"),
        ("decode: {args: {page-size: 64}}\n", "1:28"),
        (
            "defaults: {args: {page-size: 64}}\ndecode: {args: {page-size: ~}}\n",
            "1:30",
        ),  # taken back: the default
    ],
)
def test_different_page_sizes_are_refused(found: Found, lines: str, place: str) -> None:
    assert found(lines, "PD302") == [f"error {place} {DIFFER}"]


def test_against_an_unknown_default_one_side_alone_is_a_warning(found: Found) -> None:
    assert found("decode: {args: {page-size: 64}}\n", "PD302", engine="other") == [
        "warning 1:28 prefill and decode may use different page sizes"
    ]


def test_the_other_side_and_the_consequence_are_notes() -> None:
    text = "schema: pdctl/v1\nname: demo\nmodel: {path: x}\nengine: {kind: reference}\n"
    text += "prefill: {args: {dtype: float32}}\ndecode: {args: {dtype: bfloat16}}\n"
    (fault,) = [each for each in check(load_text(text).require()) if each.code == "PD301"]
    assert fault.label == "decode"
    assert fault.notes[0] == "prefill takes float32: `prefill.args.dtype`, line 5"
    assert "wrong text" in fault.notes[1]


def test_known_defaults_are_those_of_the_engine() -> None:
    settings = parse_settings(["--model-path", "x"])
    assert ENGINE_DEFAULTS["reference"] == {"page-size": settings.page_size, "dtype": settings.dtype}


@pytest.mark.parametrize(
    "lines",
    [
        "",
        "defaults: {args: {context-length: 2048}}\n",
        "decode: {args: {context-length: 2048}}\n",  # decode alone: published deployments do so
    ],
)
def test_context_lengths_that_cannot_strand_a_request_are_fine(found: Found, lines: str) -> None:
    assert found(lines, "PD306") == []


@pytest.mark.parametrize(
    ("decode", "takes"),
    [("{context-length: 4096}", "4096"), ("{context-length: 1024}", "1024"), ("{}", "the model's own")],
)
def test_context_lengths_that_strand_requests_are_a_warning(found: Found, decode: str, takes: str) -> None:
    lines = f"prefill: {{args: {{context-length: 2048}}}}\ndecode: {{args: {decode}}}\n"
    (fault,) = found(lines, "PD306")
    assert fault.startswith("warning")
    assert fault.endswith(f"context length is 2048 on prefill and {takes} on decode")


@pytest.mark.parametrize(
    ("model", "decode", "severity"),
    [
        ("mine", "{}", "error"),
        ("mine", "{context-length: 4096}", "error"),
        ("mine", "{context-length: 1024}", "warning"),
        ("mine, context_length: 4096", "{}", "error"),
        ("mine, context_length: 2048", "{}", None),  # prefill takes all that the model can
    ],
)
def test_decode_of_sglang_must_not_take_longer_requests(
    model: str, decode: str, severity: str | None
) -> None:
    text = f"schema: pdctl/v1\nname: demo\nmodel: {{path: {model}}}\nengine: {{kind: sglang}}\n"
    text += f"prefill: {{args: {{context-length: 2048}}}}\ndecode: {{args: {decode}}}\n"
    topology, _ = with_facts(load_text(text).require(), lambda path: None)
    found = [each.severity for each in check(topology) if each.code == "PD306"]
    assert found == ([] if severity is None else [severity])


def test_only_prefill_has_a_bootstrap_port(found: Found) -> None:
    assert found("prefill: {bootstrap_port: 9000}\n", "PD304") == []
    assert found("decode: {bootstrap_port: 9000}\n", "PD304") == [
        "error 1:26 decode instances run no bootstrap server"
    ]
