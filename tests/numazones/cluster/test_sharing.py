"""Sharing equal parts changes nothing about what is read."""

from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.api.zones import node_from_zones
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.sharing import Sharing
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones_simulator import node_kinds
from numazones_simulator.workload import PodStream

HALF = 100


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numazones.cluster.sharing.HALF", HALF)


@given(seed=st.integers(0, 1000))
def test_pods_read_with_shared_parts_equal_those_read_alone(seed: int) -> None:
    sharing = Sharing()
    for number, body in enumerate(islice(PodStream(seed).pods(), 60)):
        body["metadata"] |= {"uid": f"uid-{number}", "creationTimestamp": f"2026-01-31T08:00:{number:02}Z"}
        if number % 5 == 0:
            body["metadata"]["annotations"] = {"kubernetes.io/config.mirror": f"static-{number}"}
        shared, alone = sharing.pod(body), ClusterPod.from_api(body)
        assert shared == alone
        assert isinstance(shared.admission, Pod)
        assert alone.admission is not None
        assert shared.admission.demand() == alone.admission.demand()


def test_pod_that_cannot_be_read_stays_so_beside_its_template() -> None:
    sharing = Sharing()
    container = {"name": "c", "resources": {"requests": {"cpu": "twelve"}}}
    for name in ("a", "b"):
        pod = sharing.pod({"metadata": {"name": name}, "spec": {"containers": [container]}})
        assert pod.admission is None
        assert "twelve" in pod.problem


def test_a_resized_pod_is_not_taken_for_its_template() -> None:
    sharing = Sharing()
    amounts = {"requests": {"cpu": "2"}}
    body = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "resources": amounts}]}}
    status = {"containerStatuses": [{"name": "c", "resources": {"requests": {"cpu": "4"}}}]}
    assert sharing.pod(body).requests == {"cpu": 2000}
    assert sharing.pod(body | {"status": status}).requests == {"cpu": 4000}


def test_equal_nodes_share_one_kubelet() -> None:
    sharing = Sharing()

    def read(kind: node_kinds.NodeKind, name: str) -> Node:
        zones = zones_from_node(kind("n", "a").empty_node(), node_name=name, pods={})
        read = node_from_zones(zones, remember=sharing.remember)
        assert read.state_key == node_from_zones(zones).state_key
        return read

    first, second = (read(node_kinds.single_numa_node, name) for name in ("one", "two"))
    assert first.kubelet is second.kubelet
    assert read(node_kinds.restricted_pods, "three").kubelet is not first.kubelet


@pytest.mark.parametrize(
    "change",
    [
        {"nodeSelector": {"zone": "a"}},
        {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
        {"tolerations": [{"key": "gpu", "operator": "Exists"}]},
        {"schedulingGates": [{"name": "wait"}]},
        {"schedulerName": "other"},
        {"os": {"name": "windows"}},
        {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule"}]},
        {"containers": [{"name": "c", "ports": [{"hostPort": 80}]}]},
        {"initContainers": [{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]},
    ],
    ids=lambda change: next(iter(change)),
)
def test_pods_alike_but_for_their_constraints_are_told_apart(change: dict[str, Any]) -> None:
    sharing = Sharing()
    spec = {"containers": [{"name": "c"}]}
    plain, other = (
        sharing.pod({"metadata": {"name": "a"}, "spec": body}) for body in (spec, {**spec, **change})
    )
    assert plain.constraints == Constraints()
    assert other.constraints == Constraints.from_api({**spec, **change}) != Constraints()


@pytest.mark.usefixtures("_small")
def test_unused_shared_values_are_not_kept_forever() -> None:
    sharing = Sharing()
    used = ("in use",)
    for number in range(5 * HALF):
        sharing.value((f"of pod {number}",))
        assert sharing.value(("in use",)) is sharing.value(used)
        assert len(sharing) <= 2 * HALF


@pytest.mark.usefixtures("_small")
def test_metadata_of_deleted_pods_is_not_kept() -> None:
    sharing = Sharing()
    most = 0
    for number in range(3 * HALF):
        labels = {"release": f"r{number}"}
        container = {"name": "c", "resources": {"limits": {"cpu": f"{number + 1}m"}}}
        metadata = {"name": "p", "namespace": "n", "labels": labels, "annotations": labels}
        sharing.pod({"metadata": metadata, "spec": {"containers": [container]}})
        most = max(most, len(sharing))
    assert most <= 3 * 2 * HALF
