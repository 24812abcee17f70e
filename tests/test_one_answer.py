"""One question has one answer: what surfaces say about the same thing is equal, read live or from a dump."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kubectl_numazones.printing import answers, zone_figures
from numazones.alignment import pod_alignment as alignment
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.cluster.dump import Dump
from numazones.placement import models
from numazones.placement.fragmentation import Shape
from numazones.prediction.forecast import PodKind
from numazones.prediction.room import FittingPods, pod_of_shape
from numazones.rebalance.dump import situation_of
from numazones.rebalance.goals import FitMore, Wanted
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_gauges import ClusterGauges
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import Heartbeat, ModelObject, TopologyReport, ZoneReport
from numazones_operator.predictions.live_forecasts import LiveForecasts
from numazones_page.documents import node_documents
from tests.laws import examples
from tests.random_clusters import SimulatedNode, clusters, installed

SHAPES = tuple(Shape.parse(text) for text in ("cpu=6", "cpu=8,memory=2Gi", "cpu=16"))
MOMENT = datetime(2026, 1, 31, 9, tzinfo=UTC)


def objects_of(nodes: list[SimulatedNode], pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Everything that ``kubectl get`` would print of the kinds that numazones reads."""
    found: list[dict[str, Any]] = list(installed(nodes))
    for node in nodes:
        found.append({**node.node(), "kind": "Node"})
        found += node.zones()
        found += [published.body for published in node.published()]
    return [*found, *({**pod, "kind": "Pod"} for pod in pods)]


def read_dump(nodes: list[SimulatedNode], pods: list[dict[str, Any]]) -> Cluster:
    """The cluster as the plugin reads it from a file."""
    return situation_of(Dump.of(objects_of(nodes, pods)), MOMENT).cluster


def put(state: ClusterState, body: dict[str, Any]) -> None:
    """Hand an object that models read to whoever mirrors its kind."""
    read_by = [kind for kind in models.object_kinds() if kind.kind == body["kind"]]
    for kind in read_by:
        state.model_objects[kind].put(ModelObject.from_api(body))
    if not read_by:
        state.topologies.put(TopologyReport.from_api(body))


def mirror(nodes: list[SimulatedNode], pods: list[dict[str, Any]]) -> ClusterState:
    """The cluster as the operator mirrors it."""
    state: ClusterState

    def pod_changed(old: ClusterPod | None, new: ClusterPod | None) -> None:
        state.let_go(old, new)
        state.record_pod(old, new, rejected=False)

    state = ClusterState(settle=10.0, pod_changed=pod_changed, clock=lambda: 0.0, wall=lambda: 0.0)
    for body in installed(nodes):
        put(state, body)
    for pod in pods:
        state.pods.put(ClusterPod.from_api(pod))
    for node in nodes:
        state.nodes.put(ClusterNode.from_api(node.node()))
        state.heartbeats.put(Heartbeat(node.spec.name, "2026-01-31T08:00:00Z", 0.0))
        state.heartbeats.put(Heartbeat(node.spec.name, "2026-01-31T08:00:01Z", 60.0))
        for zone in node.zones():
            state.zones.put(ZoneReport.from_api(zone))
        for published in node.published():
            put(state, published.body)
    return state


def kubectl_answers(node: ClusterNode) -> list[tuple[str, ...]]:
    """The rows of ``who``."""
    return list(answers.holders(node))


def said_by_page(node: ClusterNode) -> dict[str, Any]:
    (document,) = [body for key, body in node_documents(node, SHAPES).items() if key.startswith("node/")]
    return dict(document)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_a_dump_and_the_live_cluster_are_read_alike(
    cluster: tuple[list[SimulatedNode], list[dict[str, Any]]],
) -> None:
    dumped, live = read_dump(*cluster).nodes, mirror(*cluster)
    for name, node in dumped.items():
        mirrored = live.node(name)
        assert mirrored is not None
        assert (node.known is None, node.unknown) == (mirrored.known is None, mirrored.unknown)
        if node.known is None or mirrored.known is None:
            continue
        assert node.known.model == mirrored.known.model
        assert node.known.key == mirrored.known.key
        assert node.requested == mirrored.requested
        assert said_by_page(node) == said_by_page(mirrored)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters())
def test_page_metrics_fit_plans_and_top_say_the_same(
    cluster: tuple[list[SimulatedNode], list[dict[str, Any]]],
) -> None:
    live = mirror(*cluster)
    nodes = {node.name: node for node in live.all_nodes()}
    gauges = ClusterGauges(live, SHAPES)
    shown = {
        (sample.name, *sample.labels.values()): sample.value
        for family in gauges.families()
        for sample in family.samples
    }
    for position, shape in enumerate(SHAPES):
        pod = pod_of_shape(shape)
        placed = answers.place(pod, nodes, answers.forecast_of(pod, nodes), most=10_000)
        by_page = {
            name: (said_by_page(node).get("fit") or [[0] * 3] * 9)[position][2]
            for name, node in nodes.items()
        }
        by_fit = {name: sum(one.node.name == name for one in placed) for name in nodes}
        assert by_page == by_fit
        assert shown["numazones_shape_fitting_pods", str(shape)] == len(placed)
        goal = FitMore((Wanted.shape("shape", shape),))
        by_plans = {name: goal.worth(node)[0] for name, node in nodes.items() if node.movable}
        assert by_plans == {name: by_page[name] for name in by_plans}
    by_owner: Counter[str] = Counter()
    for (metric, *labels), value in shown.items():
        if metric == "numazones_owner_pods":
            by_owner[labels[-1]] += int(value)
    lying = [found for node in nodes.values() for _, found in alignment.of_node(node) or ()]
    assert +by_owner == Counter(found.alignment for found in lying)
    for node in nodes.values():
        counted = Counter(found.alignment for _, found in alignment.of_node(node) or ())
        by_name = alignment.by_name(node)
        misaligned = {name: found.sentence for name, found in by_name.items() if not found.aligned}
        told = said_by_page(node).get("misaligned") or []
        assert {one["pod"]: one["says"] for one in told} == misaligned
        for _, holder, *_, word in kubectl_answers(node):
            assert word == (str(by_name[holder].alignment) if holder in by_name else "")
        assert {kind: shown.get(("numazones_node_pods", node.name, kind), 0) for kind in counted} == counted
        top = {zone.numa: zone for zone in zone_figures.zones_of(node)}
        for zone in said_by_page(node).get("zones", ()):
            assert top[zone["id"]].free == (zone["free"] if said_by_page(node)["exclusive"] else 0)


@settings(max_examples=examples(15), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(clusters(), st.sampled_from(["cpu=1", "cpu=4", "cpu=6,memory=1Gi", "cpu=24"]))
async def test_why_and_the_operator_predict_alike(
    cluster: tuple[list[SimulatedNode], list[dict[str, Any]]], text: str
) -> None:
    live, dumped = mirror(*cluster), read_dump(*cluster).nodes
    pod = pod_of_shape(Shape.parse(text))
    said = answers.prediction_of(pod, answers.forecast_of(pod, dumped))
    live.pods.put(pod)
    forecasts = LiveForecasts(live, metrics=Metrics(CollectorRegistry()), candidates=len(dumped))
    predictions = [prediction async for _, prediction, _ in forecasts.renew()]
    assert PodKind.of(pod) is not None
    assert predictions
    assert all(prediction == said for prediction in predictions)


def test_count_cached_between_equal_nodes_is_the_same() -> None:
    fitting = FittingPods()
    assert fitting.count(ClusterNode("a"), SHAPES[0]) == FittingPods().count(ClusterNode("b"), SHAPES[0])
