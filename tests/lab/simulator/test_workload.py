from collections import Counter
from itertools import islice

from numazones.cluster.requests import effective_requests
from numazones.kubelet.demand import QOSClass
from numazones.kubelet.pod import Pod
from numazones_simulator import node_kinds
from numazones_simulator.workload import PodStream


def test_equal_seeds_give_equal_pods() -> None:
    assert list(islice(PodStream(3).pods(), 50)) == list(islice(PodStream(3).pods(), 50))
    assert list(islice(PodStream(3).pods(), 50)) != list(islice(PodStream(4).pods(), 50))


def test_pods_come_in_every_form_that_kubelets_treat_differently() -> None:
    bodies = list(islice(PodStream(1).pods(), 400))
    assert len({body["metadata"]["name"] for body in bodies}) == 400
    forms = Counter(body["metadata"]["labels"]["app"] for body in bodies)
    assert len(forms) == 11
    pods = [Pod.from_api(body) for body in bodies]
    assert {pod.qos for pod in pods} == set(QOSClass)
    assert not all(pod.demand().served for pod in pods)
    assert all(
        effective_requests(body) for body in bodies if body["metadata"]["labels"]["app"] != "besteffort"
    )


def test_nodes_of_every_kind_start_and_differ() -> None:
    specs = node_kinds.mixed(7)
    assert [spec.name for spec in specs] == [f"node-{number}" for number in range(1, 8)]
    assert len({spec.address for spec in specs}) == 7
    policies = {spec.labels[node_kinds.KIND_LABEL]: spec.empty_node().config for spec in specs}
    assert len(policies) == len(node_kinds.KINDS)
    assert {config.topology_manager_policy for config in policies.values()} == {
        "none",
        "best-effort",
        "restricted",
        "single-numa-node",
    }
    assert {config.topology_manager_scope for config in policies.values()} == {"container", "pod"}
