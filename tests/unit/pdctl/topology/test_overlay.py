"""Profiles and `--set`, through the loader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.topology.load import Loaded, load_text
from pdctl.topology.model import Host

PROFILES = """\
profiles:
  big: {decode: {instances: 8, args: {page-size: 32}}, model: {served_name: big}}
  wrong: {decode: {instance: 8}}
"""


def test_a_profile_merges_key_by_key(document: str) -> None:
    text = document.replace(
        "decode: {instances: 2}", "decode: {instances: 2, port: 30100}"
    ) + PROFILES.replace("instance: 8", "instances: 1")
    topology = load_text(text, profile="big").require()
    assert (topology.decode.instances, topology.decode.port) == (8, 30100)
    assert topology.model.served_name == "big"
    assert load_text(text).require().decode.instances == 2


def test_a_fault_in_a_profile_that_is_not_chosen_is_reported(
    document: str, say: Callable[[Loaded], list[str]]
) -> None:
    assert say(load_text(document + PROFILES)) == ["PD121 9:20 `decode` has no key `instance`"]


def test_a_fault_in_a_chosen_profile_is_reported_once(
    document: str, say: Callable[[Loaded], list[str]]
) -> None:
    assert say(load_text(document + PROFILES, profile="wrong")) == [
        "PD121 9:20 `decode` has no key `instance`"
    ]


def test_an_unset_variable_counts_only_in_a_chosen_profile(document: str) -> None:
    text = document + "profiles:\n  remote: {router: {host: '${PDCTL_TEST_NONE}'}}\n"
    assert load_text(text).diagnostics == ()
    assert [each.code for each in load_text(text, profile="remote").diagnostics] == ["PD115"]


@pytest.mark.parametrize(("name", "hint"), [("bgi", "did you mean `big`?"), ("zzz", "known here: `big`")])
def test_an_unknown_profile_is_refused_with_those_there_are(document: str, name: str, hint: str) -> None:
    (fault,) = load_text(document + "profiles: {big: {}}\n", profile=name).diagnostics
    assert (fault.code, fault.help) == ("PD119", hint)


def test_a_document_without_profiles_says_where_they_go(document: str) -> None:
    (fault,) = load_text(document, profile="big").diagnostics
    assert (fault.code, fault.span) == ("PD119", None)


def test_set_changes_makes_and_indexes(document: str) -> None:
    sets = [
        "decode.instances=3",
        "router.args.log-level=debug",
        "cluster.nodes=[{name: a}, {name: b}]",
        "cluster.nodes.1.address=10.0.0.2",
        'engine.version="0.5"',
        "decode.args={page-size: 32, trace: true}",
        "x-note=anything",
    ]
    topology = load_text(document, sets=sets).require()
    assert topology.decode.instances == 3
    assert topology.router.args == {"log-level": "debug"}
    assert topology.cluster.nodes == (Host(name="a"), Host(name="b", address="10.0.0.2"))
    assert topology.engine.version == "0.5"
    assert topology.decode.args == {"page-size": 32, "trace": True}


def test_set_comes_after_the_profile_and_a_later_set_wins(document: str) -> None:
    text = document + "profiles: {big: {decode: {instances: 8}}}\n"
    assert load_text(text, profile="big", sets=["decode.instances=3"]).require().decode.instances == 3
    assert load_text(text, sets=["decode.instances=3", "decode.instances=4"]).require().decode.instances == 4


def test_the_value_of_set_is_what_yaml_would_read(document: str) -> None:
    topology = load_text(
        document, sets=["decode.env.FLAG='1'", "decode.args.a=on", "decode.args.b=010"]
    ).require()
    assert topology.decode.env == {"FLAG": "1"}
    assert topology.decode.args == {"a": "on", "b": 10}


def test_set_may_repair_a_document(document: str) -> None:
    broken = document.replace("instances: 2", "instances: two")
    assert load_text(broken, sets=["decode.instances=2"]).require().decode.instances == 2


def test_faults_of_arguments_are_shown_as_lines_of_a_file(
    document: str, say: Callable[[Loaded], list[str]]
) -> None:
    sets = [
        "decode.instances=two",
        "decode.colour=red",
        "a",
        "prefill.instances.x=1",
        "name=]",
        "router.port=[a, *b]",
    ]
    loaded = load_text(document, sets=sets)
    assert say(loaded) == [
        "PD123 1:18 `decode.instances` must be a whole number, found the text `two`",
        "PD121 2:1 `decode` has no key `colour`",
        "PD117 3:1 `a` sets nothing",
        "PD118 4:1 `x` can't be set inside `1`, which is one value",
        "PD105 5:6 a value is expected here",
        "PD111 6:17 no anchor `&b` above this alias",
    ]
    spans = [each.span for each in loaded.diagnostics]
    assert [(span.file, span.text) for span in spans if span is not None] == [
        ("--set", each) for each in sets
    ]


@pytest.mark.parametrize(
    "argument", ["", "=1", "a..b=1", ".a=1", "a b=1", "name=a\nb", "name=\x00", "name=\udc80"]
)
def test_a_malformed_argument_is_refused(document: str, argument: str) -> None:
    assert [each.code for each in load_text(document, sets=[argument]).diagnostics] == ["PD117"]


def test_an_index_in_brackets_is_told_how_to_stand(document: str) -> None:
    (fault,) = load_text(document, sets=("cluster.nodes[0].address=x",)).diagnostics
    assert fault.help == "an index stands between dots, as in `--set cluster.nodes.0.address=…`"


def test_a_profile_cannot_be_set(document: str) -> None:
    text = document + "profiles: {big: {decode: {instances: 8}}}\n"
    (fault,) = load_text(text, profile="big", sets=["profiles.big.decode.instances=9"]).diagnostics
    assert fault.code == "PD118"


def test_nothing_after_the_equals_sign_is_no_value(document: str, say: Callable[[Loaded], list[str]]) -> None:
    assert say(load_text(document, sets=["name="])) == ["PD123 1:1 `name` must be text, found nothing"]
