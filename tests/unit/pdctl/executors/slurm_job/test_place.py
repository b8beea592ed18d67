"""Which nodes we have, by what Slurm writes into the environment; and those of a topology among them."""

from __future__ import annotations

import pytest

from pdctl.diagnostics import DiagnosticError
from pdctl.executors.slurm_job.home import JobRecord
from pdctl.executors.slurm_job.inventory import nodes_of
from pdctl.executors.slurm_job.job import JobNode
from pdctl.executors.slurm_job.place import Allocation, HeldNode, is_still, own_allocation
from pdctl.topology.model import Cluster, Host
from pdctl.topology.slurm import HetGroup, Slurm

HELD = tuple(JobNode(name=f"gpu{n}", address=f"10.0.0.{n}", state="ALLOCATED") for n in (3, 5, 8))


def test_outside_of_a_job_there_is_no_allocation():
    assert own_allocation({"HOME": "/root"}) is None


def test_a_batch_script_knows_its_nodes_its_own_one_and_how_often_it_was_put_back():
    environ = {
        "SLURM_JOB_ID": "47",
        "SLURM_JOB_NODELIST": "gpu[08-10],cpu1",
        "SLURM_RESTART_COUNT": "2",
        "SLURMD_NODENAME": "gpu08",
    }
    names = ("gpu08", "gpu09", "gpu10", "cpu1")
    assert own_allocation(environ) == Allocation(
        job_id=47, generation=2, nodes=tuple(HeldNode(name=name) for name in names), own_node="gpu08"
    )


def test_each_node_of_a_heterogeneous_job_is_known_with_its_component():
    environ = {
        "SLURM_JOB_ID": "47",
        "SLURM_JOB_NODELIST": "gpu[1-2]",
        "SLURM_HET_SIZE": "2",
        "SLURM_JOB_NODELIST_HET_GROUP_0": "gpu[1-2]",
        "SLURM_JOB_NODELIST_HET_GROUP_1": "big1",
    }
    found = own_allocation(environ)
    assert found is not None
    assert [(node.name, node.het_group) for node in found.nodes] == [("gpu1", 0), ("gpu2", 0), ("big1", 1)]


@pytest.mark.parametrize(
    ("record", "is_same"),
    [
        (JobRecord(job_id=47, generation=1, hosts=("a", "b")), True),
        (JobRecord(job_id=48, generation=1, hosts=("a", "b")), False),
        (JobRecord(job_id=47, generation=2, hosts=("a", "b")), False),
        (JobRecord(job_id=47, generation=1, hosts=("a", "c")), False),
        (None, False),
    ],
)
def test_nodes_count_as_known_while_the_record_tells_of_them(record, is_same):
    known = Allocation(job_id=47, generation=1, nodes=(HeldNode(name="a"), HeldNode(name="b")))
    assert is_still(known, record) is is_same


def test_a_number_of_nodes_takes_the_first_ones_with_their_addresses_and_devices():
    cluster = Cluster(executor="slurm", nodes=2, devices_per_node=8, slurm=Slurm(python="/opt/python"))
    found = nodes_of(cluster, HELD).nodes
    assert [(each.name, each.address, each.num_devices, each.python) for each in found] == [
        ("gpu3", "10.0.0.3", 8, "/opt/python"),
        ("gpu5", "10.0.0.5", 8, "/opt/python"),
    ]


def test_groups_of_different_shapes_are_counted_in_their_order():
    groups = (HetGroup(nodes=2, devices_per_node=8), HetGroup(nodes=1, devices_per_node=4))
    cluster = Cluster(executor="slurm", nodes=3, slurm=Slurm(het_groups=groups))
    assert [each.num_devices for each in nodes_of(cluster, HELD).nodes] == [8, 8, 4]


def test_named_nodes_are_found_by_name_and_keep_an_address_of_their_own():
    cluster = Cluster(executor="slurm", nodes=(Host(name="gpu8"), Host(name="gpu3", address="ib3")))
    found = nodes_of(cluster, HELD).nodes
    assert [(each.name, each.address) for each in found] == [("gpu8", "10.0.0.8"), ("gpu3", "ib3")]


@pytest.mark.parametrize(
    ("nodes", "message"),
    [
        (4, "the topology needs 4 nodes, the job has 3: gpu[3,5,8]"),
        ((Host(name="gpu3"), Host(name="gpu9")), "the job has no gpu9: its nodes are gpu[3,5,8]"),
    ],
)
def test_a_job_that_does_not_fit_is_refused(nodes, message):
    with pytest.raises(DiagnosticError) as caught:
        nodes_of(Cluster(executor="slurm", nodes=nodes), HELD)
    assert [(each.code, each.message) for each in caught.value.diagnostics] == [("PD540", message)]
