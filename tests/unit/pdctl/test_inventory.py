"""What the document alone says of the nodes."""

from __future__ import annotations

from pdctl.compiler import compile_plan
from pdctl.inventory import declared
from pdctl.topology.model import Cluster, Host, HostSsh
from pdctl.topology.slurm import HetGroup, Slurm


def test_auto_stands_for_what_only_the_node_knows():
    node = declared(Cluster(nodes=(Host(name="n1", address="auto", interface="auto"),))).nodes[0]
    assert (node.address, node.interface) == ("n1", None)
    # The address that will be found is for its peers; the operator goes by the name.
    assert node.ssh.host == "n1"


def test_a_login_of_its_own_is_kept():
    host = Host(name="n1", address="10.0.0.1", ssh=HostSsh(host="bmc-n1", user="me"))
    assert declared(Cluster(nodes=(host,))).nodes[0].ssh == HostSsh(host="bmc-n1", user="me")


def test_a_node_has_its_own_interpreter_and_model(make_topology, reference_programs):
    hosts = (Host(name="a", python="/nvme/py", model_path="/nvme/m"), Host(name="b"))
    topology = make_topology(cluster=Cluster(nodes=hosts), prefill={"on": ("a",)}, decode={"on": ("b",)})
    plan = compile_plan(topology, declared(topology.cluster), reference_programs)
    prefill, decode, _router = plan.processes
    assert prefill.argv[0] == "/nvme/py"
    assert prefill.argv[prefill.argv.index("--model-path") + 1] == "/nvme/m"
    assert decode.argv[0] == "python3"
    assert decode.argv[decode.argv.index("--model-path") + 1] == topology.model.path


def test_nodes_of_a_job_with_several_shapes_have_the_devices_of_their_group():
    groups = (HetGroup(nodes=1, devices_per_node=4), HetGroup(nodes=2))
    cluster = Cluster(executor="slurm", nodes=3, devices_per_node=8, slurm=Slurm(het_groups=groups))
    assert [node.num_devices for node in declared(cluster).nodes] == [4, 8, 8]
