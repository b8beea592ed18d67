from __future__ import annotations

from pdctl.resources import resource_path


def test_schemas_and_topologies_are_found() -> None:
    assert resource_path("schemas", "topology.schema.json").is_file()
    assert resource_path("topologies", "laptop_1p1d.yaml").is_file()
