from __future__ import annotations

from pdctl.topology.load import Loaded, load_text
from pdctl.topology.model import Host, HostSsh

DOCUMENT = """\
schema: pdctl/v1
name: demo
model: {path: tiny}
engine: {kind: reference}
cluster:
  executor: ssh
  nodes:
NODES
prefill: {}
decode: {}
"""


def _load(*nodes: str) -> Loaded:
    return load_text(DOCUMENT.replace("NODES", "\n".join(f"    - {node}" for node in nodes)))


def _hosts(*nodes: str) -> tuple[Host, ...]:
    found = _load(*nodes).require().cluster.nodes
    assert isinstance(found, tuple)
    return found


def _faults(*nodes: str) -> list[tuple[str, str, str | None]]:
    return [
        (each.code, each.message, each.span and each.span.text[each.span.column - 1 :][: each.span.length])
        for each in _load(*nodes).diagnostics
    ]


def test_a_range_stands_for_alike_hosts_and_addresses_count_along():
    hosts = _hosts(
        "{name: 'gpu[08-10]', address: '10.0.0.[8-10]', devices: 4, ssh: {host: 'gpu[08-10].example.org'}}",
        "{name: head}",
    )
    assert [host.name for host in hosts] == ["gpu08", "gpu09", "gpu10", "head"]
    assert hosts[2] == Host(
        name="gpu10", address="10.0.0.10", devices=4, ssh=HostSsh(host="gpu10.example.org")
    )


def test_what_has_no_range_is_the_same_for_all():
    hosts = _hosts("{name: 'a[1-2]', address: auto, interface: auto, env: {A: '1'}}")
    assert {(host.address, host.interface, tuple(host.env.items())) for host in hosts} == {
        ("auto", "auto", (("A", "1"),))
    }


def test_places_of_all_members_are_those_of_the_entry():
    source = _load("{name: 'a[1-3]', address: '10.0.0.[1-3]'}").require().source
    places = {source.value("cluster", "nodes", index, "address") for index in range(3)}
    assert len(places) == 1


def test_parts_of_different_length_are_a_fault_at_the_part():
    assert _faults("{name: 'a[1-3]', address: '10.0.0.[1-2]'}") == [
        ("PD513", "`address` stands for 2, `name` for 3", "'10.0.0.[1-2]'")
    ]
    assert _faults("{name: a, address: '10.0.0.[1-2]'}") == [
        ("PD513", "`address` stands for 2, `name` for 1", "'10.0.0.[1-2]'")
    ]


def test_every_faulty_range_is_told_at_once_and_each_once():
    found = _faults("{name: 'a[3-1]'}", "{name: 'b[1-x]'}", "{name: c, address: '[::1]'}", "{name: 'd[1-2'}")
    assert [code for code, _, _ in found] == ["PD513"] * 4


def test_a_mistyped_number_does_not_fill_memory():
    assert [code for code, _, _ in _faults("{name: 'a[1-9000]'}", "{name: 'b[1-9000]'}")] == ["PD513"]


def test_a_fault_of_the_schema_in_a_range_is_one_fault():
    assert [code for code, _, _ in _faults("{name: 'a[1-100]', adress: x}")] == ["PD121"]


def test_a_range_of_nodes_to_use_stands_for_each_of_them():
    text = DOCUMENT.replace("NODES", "    - {name: 'a[1-3]'}\n    - {name: b}")
    loaded = load_text(text.replace("prefill: {}", "prefill: {on: ['a[2-3]', b]}")).require()
    assert loaded.prefill.on == ("a2", "a3", "b")
    assert len({loaded.source.value("prefill", "on", index) for index in (0, 1)}) == 1


def test_a_faulty_range_of_nodes_to_use_is_told_at_its_place():
    text = DOCUMENT.replace("NODES", "    - {name: 'a[1-3]'}").replace(
        "decode: {}", "decode: {on: ['a[3-1]']}"
    )
    (fault,) = load_text(text).diagnostics
    assert (fault.code, fault.path, fault.span and fault.span.line) == ("PD513", "decode.on.0", 10)
