"""How faults against the schema are said."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pdctl.topology.load import load_text

Faults = Callable[[str], list[str]]


def hint(text: str) -> str | None:
    (fault,) = load_text(text).diagnostics
    return fault.help


def test_all_faults_come_at_once_in_the_order_of_the_document(document: str, faults: Faults) -> None:
    text = document.replace("name: demo", "name: De_mo").replace("instances: 2", "instances: 0, colour: red")
    assert faults(text + "health: 3\n") == [
        "PD125 2:7 `name` must be lower-case letters, digits and hyphens, at most 63 of them, beginning with "
        "a letter or digit, found the text `De_mo`",
        "PD124 6:21 `decode.instances` must be at least 1, found 0",
        "PD121 6:24 `decode` has no key `colour`",
        "PD123 7:9 `health` must be a mapping, found the number 3",
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("clutser: {}", "did you mean `cluster`?"),
        ("router: {bootstrap_port: 1}", "`bootstrap_port` belongs under `prefill`"),
        ("transfer: {tp: 1}", "`tp` belongs under `prefill.parallel`"),
        ("defaults: {page-size: 1}", "flags of the program go under `defaults.args`"),
        ("health: {colour: 1}", "known here: `ready_deadline_s`, `stop_grace_s`, `canary`"),
        ("cluster: {name: x}", "`name` belongs at the top"),
    ],
)
def test_an_unknown_key_is_told_where_it_belongs(document: str, lines: str, expected: str) -> None:
    assert hint(document + lines + "\n") == expected


def test_a_key_that_a_misspelt_one_stands_for_is_not_missing(document: str, faults: Faults) -> None:
    assert faults(document.replace("prefill:", "prefil:")) == ["PD121 5:1 a topology has no key `prefil`"]


def test_a_missing_key_comes_with_an_example(document: str) -> None:
    assert hint(document.replace("engine: {kind: reference}\n", "")) == "add `engine: {kind: reference}`"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("router: {python: 3}", 'put it in quotes: `"3"`'),
        ("router: {env: {A: true}}", 'put it in quotes: `"true"`'),
        ("transfer: {verify_kv: on}", "write `true` or `false`"),
        ("router: {port: '80'}", "remove the quotes"),
        ('transfer: {ib_devices: "mlx5_0,mlx5_1"}', "write a list: `[mlx5_0,mlx5_1]`"),
        ("health:", "write a value after the `:`, or remove the key"),
    ],
)
def test_a_wrong_type_comes_with_the_likely_slip(document: str, lines: str, expected: str) -> None:
    assert hint(document + lines + "\n") == expected


def test_a_flag_takes_a_mapping_but_no_list_in_a_list(document: str, faults: Faults) -> None:
    assert faults(document + "router:\n  args:\n    deep: {er: 1}\n    list: [1, [2]]\n") == [
        "PD123 10:15 `router.args.list.1` must be text, a number or a mapping, found a list",
    ]


def test_a_nodes_count_or_a_list_of_hosts(document: str, faults: Faults) -> None:
    assert faults(document + "cluster: {nodes: many}\n") == [
        "PD123 7:18 `cluster.nodes` must be a whole number or a list, found the text `many`"
    ]
    assert faults(document + "cluster:\n  nodes:\n    - {address: 10.0.0.1}\n    - {name: b:80}\n") == [
        "PD122 9:7 `cluster.nodes.0` lacks `name`",
        "PD125 10:14 `cluster.nodes.1.name` must be a host name: letters, digits, dots, hyphens and "
        "underscores, at most 253 of them, with ranges like `[01-12]`, found the text `b:80`",
    ]


@pytest.mark.parametrize("name", ["Demo", "-demo", "de_mo", "d" * 64, '"demo\\n"', "dé", '"de mo"'])
def test_names_that_no_path_or_host_would_take_are_refused(document: str, faults: Faults, name: str) -> None:
    (fault,) = faults(document.replace("name: demo", f"name: {name}"))
    assert fault.startswith("PD125 2:7")


def test_private_keys_are_never_checked(document: str) -> None:
    text = document.replace("instances: 2", "instances: 2, x-mine: [1, {}]") + "x-any: {thing: 1}\n"
    text += "router: {args: {x-flag: [[1]]}, env: {x-env: 1}}\n"
    assert [each.path for each in load_text(text).diagnostics] == ["router.args.x-flag.0"]


def test_too_many_digits_are_called_a_number(document: str, faults: Faults) -> None:
    text = document + "router: {port: 1000000000000000000000}\n"
    assert faults(text) == ["PD123 7:16 `router.port` must be a whole number, found a number of 22 digits"]


@pytest.mark.parametrize("key", ["path", "served_name"])
def test_what_programs_would_take_for_a_flag_is_refused(document: str, faults: Faults, key: str) -> None:
    wanted = "text that doesn't begin with `-`, which programs take for a flag"
    text = document.replace("model: {", f"model: {{{key}: -x, ").replace(", path: builtin:tiny-llama", "")
    assert any(f"`model.{key}` must be {wanted}" in fault for fault in faults(text))


def test_an_rdma_device_is_named_without_its_port(document: str, faults: Faults) -> None:
    (fault,) = faults(document + "transfer: {ib_devices: ['mlx5_0:1']}\n")
    assert fault.startswith("PD125 7:25 `transfer.ib_devices.0` must be the name of one RDMA device")
