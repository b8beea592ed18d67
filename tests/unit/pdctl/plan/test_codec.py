"""The plan's JSON form."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from pdctl.compiler import compile_plan
from pdctl.fields import FieldError
from pdctl.inventory import Inventory
from pdctl.plan.codec import plan_from_json, plan_to_json
from pdctl.resources import resource_path
from pdctl.topology.model import Cluster, HostSsh, Ssh
from pdctl.topology.slurm import Container, HetGroup, Slurm

PLAN_SCHEMA = json.loads(resource_path("schemas", "plan.schema.json").read_text())


@pytest.fixture
def plan(make_topology, make_inventory, reference_programs):
    topology = make_topology(prefill={"instances": 2}, decode={"env": {"A": "1"}})
    return compile_plan(topology, make_inventory(2), reference_programs)


def test_a_plan_survives_the_way_through_json(plan):
    assert plan_from_json(json.dumps(plan_to_json(plan)).encode()) == plan


def test_the_json_form_keeps_to_its_schema(plan):
    jsonschema.Draft202012Validator.check_schema(PLAN_SCHEMA)
    jsonschema.validate(plan_to_json(plan), PLAN_SCHEMA)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 2}, "the plan has format 2, this version reads 1"),
        ({"name": 7}, "`name` of the plan is 7"),
        ({"processes": None}, "`processes` of the plan is None"),
    ],
)
def test_a_damaged_plan_is_refused(plan, change, message):
    with pytest.raises(FieldError, match=message):
        plan_from_json(json.dumps({**plan_to_json(plan), **change}).encode())


@pytest.fixture
def plan_over_ssh(make_topology, make_inventory, reference_programs):
    """Every field of a login has a value."""
    login = HostSsh(
        host="gpu1",
        user="me",
        port=22,
        identity_file="~/k",
        proxy_jump="none",
        python="/p",
        state_dir="/s",
    )
    ssh = Ssh(
        user="u",
        port=2222,
        identity_file="/k",
        proxy_jump="b",
        config="/c",
        known_hosts="/h",
        transport="openssh",
        command_timeout_s=90.0,
        python="/usr/bin/python3.9",
        state_dir="/scratch",
    )
    nodes = make_inventory(2).nodes
    inventory = Inventory(nodes=(replace(nodes[0], ssh=login), *nodes[1:]))
    topology = make_topology(cluster=Cluster(executor="ssh", ssh=ssh))
    return compile_plan(topology, inventory, reference_programs)


def test_how_nodes_are_reached_survives_the_way_through_json(plan_over_ssh):
    document = plan_to_json(plan_over_ssh)
    jsonschema.validate(document, PLAN_SCHEMA)
    assert plan_over_ssh.nodes[0].ssh.host == "gpu1"
    assert plan_from_json(json.dumps(document).encode()) == plan_over_ssh


def test_what_a_job_asks_for_survives_the_way_through_json(
    make_topology, make_inventory, reference_programs, plan_over_ssh
):
    slurm = Slurm(
        partition="gpu",
        time_limit="04:00:00",
        exclude=("gpu[1-2]",),
        exclusive=False,
        het_groups=(HetGroup(nodes=1, gres="gpu:4"), HetGroup(nodes=1)),
        requeue=False,
        container=Container(runtime="pyxis", image="sglang", mounts=("/models:/models",)),
    )
    topology = make_topology(cluster=Cluster(executor="slurm", slurm=slurm))
    plan = compile_plan(topology, make_inventory(2), reference_programs)
    document = plan_to_json(plan)
    jsonschema.validate(document, PLAN_SCHEMA)
    assert plan_from_json(json.dumps(document).encode()) == plan
    assert plan.slurm == slurm
    assert plan.digest == plan_over_ssh.digest
    bare = replace(plan, slurm=Slurm())
    jsonschema.validate(plan_to_json(bare), PLAN_SCHEMA)
    assert plan_from_json(json.dumps(plan_to_json(bare)).encode()) == bare


def test_a_plan_says_nothing_of_a_login_that_the_topology_leaves_open(plan):
    document = plan_to_json(plan)
    assert "ssh" not in document
    assert all(set(node) == {"name", "address"} for node in document["nodes"])


def test_no_digest_depends_on_how_a_node_is_reached(
    plan_over_ssh, make_topology, make_inventory, reference_programs
):
    topology = make_topology(cluster=Cluster(executor="ssh"))
    elsewise = compile_plan(topology, make_inventory(2), reference_programs)
    assert elsewise.digest == plan_over_ssh.digest
    assert elsewise.processes == plan_over_ssh.processes
