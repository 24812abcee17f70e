"""Clusters on which not only kubelets place pods: predictions, unknown nodes, dumps, plans that stay away."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.cluster import OTHER_MODEL, UNDECIDED, Cluster, ClusterNode, ClusterPod
from numazones.cluster.dump import Dump
from numazones.errors import NumazonesError
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.node import Node as KubeletNode
from numazones.placement import UnreadableNode
from numazones.placement.kubelet import KUBELET, KubeletPlacement
from numazones.placement.model import NodeObjects, kubelet_verdict, runtime_verdict
from numazones.placement.models import model, model_shown, with_setting
from numazones.prediction.forecast import (
    ADMISSIBLE,
    INADMISSIBLE,
    UNKNOWN,
    Forecast,
    NodeAnswer,
    PodKind,
    ask,
    predict,
    relevant,
)
from numazones.rebalance.candidates import Situation, why_not
from numazones.rebalance.dump import situation_of
from numazones.rebalance.filter import EvictionContext
from numazones.rebalance.goals import is_known
from numazones.rebalance.moves import place
from numazones.rebalance.policy import Policy
from numazones_koordinator.annotations import NODE_NUMA_TOPOLOGY_POLICY, NUMA_TOPOLOGY_SPEC
from numazones_koordinator.identity import NAME as KOORDINATOR
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.placement import OTHER_SCHEDULER
from numazones_koordinator.scheduler import SCHEDULER_NAME
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.identity import NAME as TOPOLOGY_AWARE
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.publishing import topology_of
from tests.models.koordinator import building as koordinator
from tests.models.placements import placement_of
from tests.models.topology_aware.machines import configuration, hardware
from tests.numazones.kubelet import building as kubelet

GIB = 2**30
NOW = datetime(2026, 11, 22, tzinfo=UTC)
ALIGNED = {NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})}


def worker(name: str, state: KubeletNode | KoordinatorNode | TopologyAwareNode) -> ClusterNode:
    node = ClusterNode(name, allocatable={"cpu": 64_000, "memory": 64 * GIB, "vendor.example/nic": 4})
    return node.with_placement(placement_of(state))


def pod(
    name: str, cpu: str, *, nics: int = 0, scheduler: str = SCHEDULER_NAME, **metadata: Any
) -> ClusterPod:
    amounts = {"cpu": cpu, "memory": "1Gi"} | ({"vendor.example/nic": str(nics)} if nics else {})
    return ClusterPod.from_api(
        {
            "metadata": {"namespace": "d", "name": name, "uid": name, **metadata},
            "spec": {
                "schedulerName": scheduler,
                "containers": [{"name": "c", "resources": {"requests": amounts, "limits": amounts}}],
            },
        }
    )


def mixed() -> list[ClusterNode]:
    """A kubelet's node with 15 free CPUs, Koordinator's with 8 per NUMA node, topology-aware's with 4."""
    return [
        worker("kubelet", kubelet.node()),
        worker("koordinator", koordinator.node(2)),
        worker("topology-aware", TopologyAwareNode.fresh(hardware(), configuration())),
    ]


def test_every_node_of_a_mixed_cluster_uses_its_model() -> None:
    result = predict(pod("a", "2", annotations=ALIGNED), mixed())
    assert result.verdict == ADMISSIBLE
    assert (result.nodes.evaluated, result.nodes.admissible, result.nodes.stale) == (3, 3, 0)
    assert {one.node: one.model for one in result.candidates} == {
        "kubelet": KUBELET,
        "koordinator": KOORDINATOR,
        "topology-aware": TOPOLOGY_AWARE,
    }
    assert all(len(one.zones) == 1 and 0 < one.score <= 100 for one in result.candidates)


def test_each_model_rejects_in_its_own_words() -> None:
    result = predict(pod("a", "40", annotations=ALIGNED), mixed())
    assert result.verdict == INADMISSIBLE
    said = {one.model: (one.source, one.reason, one.node) for one in result.reasons}
    assert said[KOORDINATOR] == ("Koordinator", "Unschedulable", "koordinator")
    assert said[TOPOLOGY_AWARE] == ("TopologyAware", "CreateContainerError", "topology-aware")
    assert said[KUBELET][0] == "Kubelet"
    assert any(one.sentence.startswith("koord-scheduler says: ") for one in result.reasons)


def test_koordinator_does_not_place_pods_of_other_schedulers() -> None:
    state = koordinator.node(2)
    foreign = pod("a", "20", annotations=ALIGNED, scheduler="default-scheduler")
    (reason,) = predict(foreign, [worker("n", state)]).reasons
    assert reason.reason == OTHER_SCHEDULER
    assert "the pod's scheduler is default-scheduler" in reason.message
    # Its zones tell that the kubelet leaves placement alone: the pod runs anywhere.
    bare = KubeletNode.fresh(hardware().machine, KubeletConfiguration.from_api({}))
    known = ClusterNode("n", allocatable={"cpu": 64_000, "memory": 64 * GIB}).with_placement(
        placement_of(state, beneath=bare)
    )
    (candidate,) = predict(foreign, [known]).candidates
    assert (candidate.model, candidate.zones) == (KUBELET, ())
    assert predict(pod("a", "20", annotations=ALIGNED), [known]).verdict == INADMISSIBLE


def test_kind_tells_namespaces_apart_only_where_that_is_asked_for() -> None:
    one, other = pod("a", "4"), replace(pod("b", "4"), namespace="e")
    assert other.admission is not None
    other = replace(other, admission=replace(other.admission, namespace="e"))
    assert PodKind.of(one) == PodKind.of(other)
    assert PodKind.of(one, by_namespace=True) != PodKind.of(other, by_namespace=True)


def test_a_pod_that_carries_another_models_marks_concerns_placement() -> None:
    burstable = {"name": "c", "resources": {"requests": {"cpu": "1"}}}

    def read(**metadata: Any) -> ClusterPod:
        named = {"namespace": "d", "name": "a", "uid": "a", **metadata}
        return ClusterPod.from_api({"metadata": named, "spec": {"containers": [burstable]}})

    assert not relevant(read())
    assert relevant(read(labels={"koordinator.sh/qosClass": "LSR"}))


def test_what_a_model_does_not_decide_is_unknown_never_fitting() -> None:
    node = worker("n", TopologyAwareNode.fresh(hardware(), configuration()))
    result = predict(pod("a", "1", nics=1), [node])
    assert (result.verdict, result.nodes.admissible, result.nodes.stale) == (UNKNOWN, 0, 1)
    assert result.reasons[0].reason == UNDECIDED
    assert "which ones it gets is unknown" in result.reasons[0].message


def test_a_forecast_says_of_each_node_what_asking_it_says() -> None:
    kind = PodKind.of(pod("a", "4", annotations=ALIGNED))
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew([*mixed(), *(replace(node, name=f"{node.name}-2") for node in mixed())])
    admitting = {node.name for node in mixed() if ask(kind, node).answer is NodeAnswer.ADMITS}
    assert set(forecast.admitting) == admitting | {f"{name}-2" for name in admitting}


def test_pods_that_another_model_tells_apart_are_of_different_kinds() -> None:
    plain, aligned = PodKind.of(pod("a", "4")), PodKind.of(pod("b", "4", annotations=ALIGNED))
    assert plain != aligned
    assert PodKind.of(pod("c", "4", annotations=ALIGNED)) == aligned
    assert PodKind.of(pod("d", "4", annotations={"example.com/note": "x"})) == plain


def test_pods_on_nodes_of_other_models_are_never_moved() -> None:
    running = replace(pod("a", "2"), node="koordinator", phase="Running")
    node = mixed()[1].with_pod(running)
    found = why_not(running, Situation(Cluster({node.name: node}), EvictionContext(now=NOW)), Policy())
    (objection,) = [one for one in found if one.rule == OTHER_MODEL]
    assert objection.message == (
        "pods are not moved from or to node koordinator yet: "
        "koord-scheduler, not the kubelet, places pods on this node's NUMA nodes"
    )
    assert place(node, pod("b", "1")).rejections == (objection.message,)
    assert not is_known(node)


@pytest.mark.parametrize(
    ("labels", "notes", "attributes", "model_name"),
    [
        ({}, {}, [], KUBELET),
        ({NODE_NUMA_TOPOLOGY_POLICY: "Restricted"}, {}, [], KOORDINATOR),
        ({}, {"node.koordinator.sh/cpu-topology": "{}"}, [], KOORDINATOR),
        ({}, {"kubelet.koordinator.sh/cpu-manager-policy": "{}"}, [], KOORDINATOR),
        ({}, {}, [("TopologyPolicy", "topology-aware")], TOPOLOGY_AWARE),
        ({}, {}, [("topologyManagerPolicy", "restricted")], KUBELET),
    ],
)
def test_a_node_shows_who_places_pods_there(
    labels: dict[str, str], notes: dict[str, str], attributes: list[tuple[str, str]], model_name: str
) -> None:
    topology = {
        "metadata": {"annotations": notes},
        "attributes": [{"name": name, "value": value} for name, value in attributes],
    }
    assert model_shown({"metadata": {"labels": labels}}, topology).name == model_name


def test_a_node_that_shows_two_models_is_unknown() -> None:
    node = {"metadata": {"labels": {NODE_NUMA_TOPOLOGY_POLICY: "Restricted"}}}
    topology = {"attributes": [{"name": "TopologyPolicy", "value": "topology-aware"}]}
    with pytest.raises(UnreadableNode, match="it is unknown which one places pods there"):
        model_shown(node, topology)


def test_node_where_kubelet_managers_also_place_pods_is_unknown() -> None:
    node = koordinator.node_object(labels={NODE_NUMA_TOPOLOGY_POLICY: "Restricted"})
    with pytest.raises(UnreadableNode, match="and the kubelet's managers both place pods"):
        model(KOORDINATOR).read(NodeObjects(node, kubelet=kubelet.node()))


def node_body(name: str, **labels: str) -> dict[str, Any]:
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def dump(*, policies: int = 1) -> list[dict[str, Any]]:
    """Three nodes of three models, as kubectl prints them."""
    bare = KubeletNode.fresh(hardware().machine, KubeletConfiguration.from_api({}))
    aware = TopologyAwareNode.fresh(
        Hardware.of(bare.machine), configuration(reserved_cpu="750m", pin_cpu=True)
    )
    topology = koordinator.nrt(
        koordinator.detail(2, 4, 2), {numa: {"cpu": "8", "memory": "16Gi"} for numa in (0, 1)}
    )
    topology["metadata"]["name"] = "koordinator"
    spec = {
        "reservedResources": {"cpu": "750m"},
        "pinCPU": True,
        "pinMemory": True,
        "preferIsolatedCPUs": True,
    }
    zones = [
        *zones_from_node(kubelet.node(), node_name="kubelet", pods={}),
        *zones_from_node(bare, node_name="topology-aware", pods={}),
    ]
    return [
        *(node_body(name) for name in ("kubelet", "koordinator", "topology-aware")),
        *(zone.to_api() for zone in zones),
        {"kind": "NodeResourceTopology", **topology},
        topology_of(aware, "topology-aware"),
        *[{"kind": "TopologyAwarePolicy", "metadata": {"name": "default"}, "spec": spec}] * policies,
    ]


def test_mixed_dump_is_read_with_each_nodes_model() -> None:
    nodes = situation_of(Dump.of(dump()), NOW).cluster.nodes
    elsewhere = ", not the kubelet, places pods on this node's NUMA nodes"
    assert {name: node.why_no_state and node.why_no_state.message for name, node in nodes.items()} == {
        "kubelet": None,
        "koordinator": f"koord-scheduler{elsewhere}",
        "topology-aware": f"the NRI topology-aware policy{elsewhere}",
    }
    result = predict(pod("a", "2", annotations=ALIGNED), nodes.values())
    assert {one.node: str(one.model) for one in result.candidates} == {name: name for name in nodes}


def test_a_topology_aware_node_without_configuration_is_unknown() -> None:
    node = situation_of(Dump.of(dump(policies=0)), NOW).cluster.nodes["topology-aware"]
    assert node.known is None
    assert node.unknown is not None
    assert node.unknown.message.startswith("there is no TopologyAwarePolicy for node topology-aware")
    assert predict(pod("a", "1"), [node]).verdict == UNKNOWN


def test_a_decision_of_any_model_is_explained_line_by_line() -> None:
    for node in mixed()[1:]:
        wanted = pod("a", "2").admission
        assert node.known is not None
        assert wanted is not None
        assert node.known.admit(wanted).explain()


def test_numa_nodes_missing_from_the_machine_are_hidden_for_devices() -> None:
    pod = kubelet.pod("uid", kubelet.container("c", 2, "1Gi", vendor_gpu="1"))
    one = kubelet.node(kubelet.machine(1), devices=kubelet.gpus((0, 1)), topologyManagerPolicy="best-effort")
    placed = KubeletPlacement(one).admit(pod).placement.occupancy({"uid": "team/a"})
    (holder,) = placed.holders
    assert [held.numas for held in holder.devices] == [(0,)]


@pytest.mark.parametrize("text", ["koordinator.scheduler", "koordinator.scheduler=", "koordinator.no=1"])
def test_setting_of_no_model_is_refused_with_those_there_are(text: str) -> None:
    with pytest.raises(NumazonesError) as error:
        with_setting({}, text)
    assert str(error.value).startswith(f"{text!r} is not a setting of a placement model; write one of these")
    assert "koordinator.scheduler" in str(error.value)


def test_later_setting_of_a_model_replaces_an_earlier_one() -> None:
    first = with_setting({"a.b": "c"}, "koordinator.scheduler=one")
    assert with_setting(first, "koordinator.scheduler=two") == {"a.b": "c", "koordinator.scheduler": "two"}


@pytest.mark.parametrize(
    ("fields", "by_kubelet", "by_runtime"),
    [
        ({"phase": "Pending"}, None, None),
        ({"phase": "Pending", "acknowledged": True}, "Admitted", None),
        ({"phase": "Running"}, "Admitted", "Admitted"),
        (
            {"phase": "Failed", "reason": "TopologyAffinityError"},
            "TopologyAffinityError",
            "TopologyAffinityError",
        ),
        ({"phase": "Failed", "reason": "Evicted", "acknowledged": True}, "Admitted", "Admitted"),
        (
            {"phase": "Pending", "acknowledged": True, "create_error": "no CPU-slots"},
            "Admitted",
            "CreateContainerError",
        ),
        ({"phase": "Pending", "acknowledged": True, "create_error": "a mount failed"}, "Admitted", None),
    ],
)
def test_verdict_is_read_from_the_status_of_a_pod(
    fields: dict[str, Any], by_kubelet: str | None, by_runtime: str | None
) -> None:
    bound = ClusterPod("default", "p", "1", node="n1", **fields)
    assert (kubelet_verdict(bound), runtime_verdict(bound, "cpu-slots")) == (by_kubelet, by_runtime)
    assert kubelet_verdict(replace(bound, node="")) in {None, "TopologyAffinityError"}
