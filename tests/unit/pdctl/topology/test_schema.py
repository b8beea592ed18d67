"""The schema and the dataclasses are two descriptions of one document."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import MISSING, fields
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from pdctl.topology.model import (
    Ascend,
    Breaker,
    Cluster,
    Engine,
    Health,
    HealthCheck,
    Host,
    HostSsh,
    Model,
    Nixl,
    Parallel,
    Queue,
    Retries,
    Role,
    Router,
    Settings,
    Ssh,
    Staging,
    Topology,
    Transfer,
)
from pdctl.topology.schema import topology_schema
from pdctl.topology.slurm import Container, HetGroup, Slurm

SECTIONS: list[tuple[tuple[str, ...], type, set[str]]] = [
    ((), Topology, {"source", "facts", "is_rehearsal"}),
    (("model",), Model, set()),
    (("engine",), Engine, set()),
    (("cluster",), Cluster, set()),
    (("cluster", "ssh"), Ssh, set()),
    (("cluster", "slurm"), Slurm, set()),
    (("cluster", "slurm", "het_groups", "items"), HetGroup, set()),
    (("cluster", "slurm", "container"), Container, set()),
    (("cluster", "nodes", "items"), Host, set()),
    (("cluster", "nodes", "items", "ssh"), HostSsh, set()),
    (("transfer",), Transfer, set()),
    (("transfer", "staging"), Staging, set()),
    (("transfer", "nixl"), Nixl, set()),
    (("transfer", "ascend"), Ascend, set()),
    (("defaults",), Settings, set()),
    (("prefill",), Role, {"name", "devices_of"}),
    (("decode",), Role, {"name"}),
    (("prefill", "parallel"), Parallel, set()),
    (("router",), Router, set()),
    (("router", "retries"), Retries, set()),
    (("router", "breaker"), Breaker, set()),
    (("router", "queue"), Queue, set()),
    (("router", "health_check"), HealthCheck, set()),
    (("health",), Health, set()),
]


def section(path: tuple[str, ...]) -> dict[str, Any]:
    schema = topology_schema()
    for key in path:
        schema = schema["items"] if key == "items" else schema["properties"][key]
        if "$ref" in schema:
            schema = topology_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
    return schema


def test_the_schema_is_a_schema() -> None:
    Draft202012Validator.check_schema(topology_schema())


@pytest.mark.parametrize(("path", "record", "internal"), SECTIONS)
def test_schema_and_dataclass_name_the_same_fields(
    path: tuple[str, ...], record: type, internal: set[str]
) -> None:
    named = set(section(path)["properties"]) - {"profiles"}
    assert named == {field.name for field in fields(record)} - internal


@pytest.mark.parametrize(("path", "record", "internal"), SECTIONS)
def test_schema_and_dataclass_agree_on_what_is_required(
    path: tuple[str, ...], record: type, internal: set[str]
) -> None:
    required = {
        field.name
        for field in fields(record)
        if field.default is MISSING and field.default_factory is MISSING
    }
    assert set(section(path).get("required", [])) == required - internal


@pytest.mark.parametrize(("path", "record", "internal"), SECTIONS)
def test_schema_and_dataclass_agree_on_defaults(
    path: tuple[str, ...], record: type, internal: set[str]
) -> None:
    for field in fields(record):
        stated = section(path)["properties"].get(field.name, {}).get("default")
        if field.name in internal or field.default is MISSING:
            continue
        actual = list(field.default) if isinstance(field.default, tuple) else field.default
        assert stated == actual, field.name


def test_every_property_is_documented_and_its_examples_hold() -> None:
    for name, schema in properties(topology_schema()):
        if "$ref" in schema:
            schema = topology_schema()["$defs"][schema["$ref"].rpartition("/")[2]]
        assert schema.get("title"), name
        assert schema.get("description"), name
        assert schema.get("examples"), name
        validator = Draft202012Validator({**schema, "$defs": topology_schema()["$defs"]})
        for example in schema["examples"]:
            validator.validate(example)


def test_every_mapping_of_known_keys_takes_private_ones_and_no_others() -> None:
    for name, schema in [("root", topology_schema()), *properties(topology_schema())]:
        if "properties" in schema:
            assert schema["patternProperties"] == {"^x-": True}, name
            assert schema["additionalProperties"] is False, name


def test_every_pattern_says_what_it_wants() -> None:
    assert all("x-must-be" in schema for schema in patterns(topology_schema()))


def properties(schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, below in schema.get("properties", {}).items():
        yield name, below
        yield from properties(below)
        yield from properties(below.get("items", {}))
    for name, below in schema.get("$defs", {}).items():
        yield name, below
        yield from properties(below)


def patterns(node: Any) -> Iterator[dict[str, Any]]:
    if isinstance(node, dict):
        if isinstance(node.get("pattern"), str):
            yield node
        for below in node.values():
            yield from patterns(below)
