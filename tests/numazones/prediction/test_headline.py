"""The headline: what has to change for a pod to run, when several things keep it from several nodes."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numazones.advice.changes import advise_on
from numazones.advice.helpful_changes import nodes_looked_at
from numazones.apimachinery.taints import Taint, Toleration
from numazones.cluster import scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.placement import Unknown
from numazones.prediction.forecast import ADMISSIBLE, INADMISSIBLE, Forecast, PodKind, Prediction, predict
from tests.numazones.prediction.test_prediction import GIB, NIC, STALE, node_state, pod

CONTROL_PLANE = Taint("node-role.kubernetes.io/control-plane", "", "NoSchedule")
SSD = {"disk": "ssd"}
TRAITS: dict[str, dict[str, Any]] = {
    "tainted": {"taints": (CONTROL_PLANE,)},
    "cordoned": {"unschedulable": True},
    "ssd": {"labels": SSD},
}


def node(name: str, traits: str = "") -> ClusterNode:
    """A node with two NUMA nodes of 16 CPUs, two of them reserved, and with traits: ``tainted full``.

    ``busy``: pods have asked for all CPUs but two; ``full``: NUMA nodes have 6 and 4 CPUs left, ``small``:
    the kubelet has 4 CPUs; ``stale``: its state is not known.
    """
    words = traits.split()
    values: dict[str, Any] = {}
    for word in words:
        values |= TRAITS.get(word, {})
    if "busy" in words:
        values["requested"] = {"cpu": 28000}
    state = node_state(held=(8, 12) if "full" in words else (0, 0))
    found = ClusterNode(name, allocatable={"cpu": 30000, "memory": 62 * GIB, NIC: 4}, **values)
    return found.with_placement(STALE) if "stale" in words else found.with_state(state)


def nodes(*traits: str) -> list[ClusterNode]:
    return [node(f"worker-{number}", words) for number, words in enumerate(traits, start=1)]


@pytest.mark.parametrize(
    ("spec", "cluster", "sentence", "count"),
    [
        pytest.param(
            {"cpu": 4, "nodeSelector": SSD},
            ("tainted", "tainted", "", "", "", ""),
            scheduling.NOT_SELECTED,
            6,
            id="a selector that matches no node, some of them tainted: the selector",
        ),
        pytest.param(
            {"cpu": 4},
            ("tainted", "tainted busy", "tainted full"),
            scheduling.UNTOLERATED,
            3,
            id="a taint on all nodes: the taint, whatever else some of them lack",
        ),
        pytest.param(
            {"cpu": 4, "nodeSelector": SSD},
            ("tainted ssd", "", "", ""),
            scheduling.UNTOLERATED,
            1,
            id="the one node that is selected has a taint: the taint, as the others were not wanted",
        ),
        pytest.param(
            {"cpu": 4, "nodeSelector": SSD},
            ("tainted", "tainted"),
            f"{scheduling.UNTOLERATED}; {scheduling.NOT_SELECTED}",
            2,
            id="taint and selector on all nodes: both",
        ),
        pytest.param(
            {"cpu": 10},
            ("full", "tainted", "tainted", "tainted"),
            "needs 10 exclusive CPUs on one NUMA node; at most 6 are free on one NUMA node (NUMA node 0 of "
            "worker-1)",
            1,
            id="a node for such pods is full, the others are closed to them: that it is full",
        ),
        pytest.param(
            {"cpu": 4},
            ("cordoned", "tainted", "tainted"),
            scheduling.UNTOLERATED,
            2,
            id="of two closed kinds the one that opens the most nodes",
        ),
        pytest.param(
            {"cpu": 10},
            ("tainted full", "tainted full"),
            f"{scheduling.UNTOLERATED}; in addition, the pod needs 10 exclusive CPUs on one NUMA node; at "
            "most 6 are free on one NUMA node (NUMA node 0 of worker-1)",
            2,
            id="behind the taint the kubelets would reject it: both",
        ),
        pytest.param(
            {"cpu": 10},
            ("tainted full", "tainted"),
            scheduling.UNTOLERATED,
            2,
            id="behind the taint one kubelet would take it: the taint alone",
        ),
        pytest.param(
            {"cpu": 4},
            ("busy", "busy", "tainted busy"),
            "No node has 4 CPUs free. Closest: worker-1 (2 free)",
            3,
            id="all lack the same: what they lack, on the node with the least in the way",
        ),
        pytest.param(
            {"cpu": 18},
            ("busy", "busy"),
            "No node has 18 CPUs free. Closest: worker-1 (2 free); in addition, the pod needs 18 "
            "exclusive CPUs on one NUMA node, more than any has even when empty; at most 16 are free on "
            "one NUMA node (NUMA node 1 of worker-1)",
            2,
            id="what is lacking would not be enough: both",
        ),
        pytest.param(
            {"cpu": 40},
            ("", "tainted"),
            "no node has 40 CPUs at all; the most is 30, on worker-1",
            2,
            id="more than any node has",
        ),
        pytest.param(
            {"cpu": 1, "resource": "vendor.example/nik"},
            ("", "tainted"),
            "no node offers vendor.example/nik; did you mean vendor.example/nic?",
            2,
            id="a resource misspelled",
        ),
        pytest.param(
            {"cpu": 1, "resource": "hugepages-1Gi"},
            ("", ""),
            "no node offers hugepages-1Gi",
            2,
            id="pages that no node has",
        ),
    ],
)
def test_the_headline_is_what_has_to_change(
    spec: dict[str, Any], cluster: tuple[str, ...], sentence: str, count: int
) -> None:
    said = predict(_pod(**spec), nodes(*cluster))
    assert said.verdict == INADMISSIBLE
    assert said.sentence == sentence
    assert said.reasons[0].count == count


def _pod(*, resource: str = "", **spec: Any) -> ClusterPod:
    if not resource:
        return pod("p", **spec)
    amounts = {"cpu": "1", "memory": "1Gi", resource: "1Gi" if resource.startswith("huge") else "1"}
    return pod("p", containers=[{"name": "main", "resources": {"requests": amounts, "limits": amounts}}])


def test_dependence_on_unknown_nodes_is_said_first() -> None:
    said = predict(pod("p", cpu=10), nodes("full", "stale", "full"))
    assert said.verdict == "Unknown"
    assert said.sentence == STALE.message


def test_closest_node_is_the_one_with_the_most_free() -> None:
    small = replace(node("small"), allocatable={"cpu": 6000, "memory": 62 * GIB})
    busy = replace(node("large"), requested={"cpu": 29000})
    said = predict(pod("p", cpu=7), [small, busy])
    assert said.sentence == "No node has 7 CPUs free. Closest: small (6 free)"
    assert said.reasons[0].node == "small"
    assert said.possible


def test_headline_and_advice_begin_with_the_same_node() -> None:
    """The kubelet of ``roomy`` never takes 18 CPUs on one NUMA node, that of ``relaxed`` would."""
    relaxed = replace(node("relaxed"), requested={"cpu": 28000}).with_state(node_state(policy="best-effort"))
    roomy = replace(node("roomy"), requested={"cpu": 14000})
    kind = PodKind.of(pod("p", cpu=18))
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew([relaxed, roomy])
    said = forecast.prediction()
    assert said.sentence == "No node has 18 CPUs free. Closest: roomy (16 free)"
    assert next(nodes_looked_at(said, forecast)) == "roomy"


@pytest.mark.parametrize(
    ("free", "closest", "advice"),
    [
        pytest.param(10, "odd", "request 10 CPUs instead of 9 in container main (odd)", id="a core is free"),
        pytest.param(9, "worker-1", "request 2 CPUs instead of 9 in container main (worker-1)", id="none is"),
    ],
)
def test_node_is_closest_if_only_whole_cores_are_missing(free: int, closest: str, advice: str) -> None:
    """However many nodes lack CPUs, and though ``odd`` rejects 9 CPUs even when it is empty."""
    whole_cores = node_state(policy="best-effort", cpuManagerPolicyOptions={"full-pcpus-only": "true"})
    odd = replace(node("odd"), requested={"cpu": 1000 * (30 - free)}).with_state(whole_cores)
    cluster = {one.name: one for one in (odd, *nodes("busy", "busy", "busy"))}
    wanted = pod("p", cpu=9)
    kind = PodKind.of(wanted)
    assert kind is not None
    forecast = Forecast(kind)
    forecast.renew(cluster.values())
    said = forecast.prediction()
    assert said.possible
    assert said.reasons[0].node == closest
    first = next(nodes_looked_at(said, forecast))
    assert advise_on(wanted, cluster[first])[0].line == advice


def test_numa_nodes_with_half_the_request_each_are_not_close() -> None:
    """CPUs on one NUMA node and devices on the other are of no use to a pod that needs both."""
    apart = node("apart").with_state(node_state(held=(0, 15), nics=2))
    near = node("near").with_state(node_state(held=(8, 8), nics=2))
    said = predict(pod("p", cpu=12, nics=1), [apart, near])
    assert said.reasons[0].node == "near"


def test_nodes_are_ordered_by_closeness() -> None:
    cluster = nodes("", "tainted", "busy", "full", "stale")
    kind = PodKind.of(pod("p", cpu=10, nodeSelector=SSD))
    assert kind is not None
    selected = [replace(one, labels=SSD) for one in cluster[1:]]
    forecast = Forecast(kind)
    forecast.renew([cluster[0], *selected])
    assert forecast.nearest == ("worker-4", "worker-5", "worker-3", "worker-2", "worker-1")


def without(said: Prediction, wanted: ClusterPod, cluster: list[ClusterNode]) -> Prediction:
    """Predict again, with everything gone that the headline names."""
    sentence, constraints = said.sentence, wanted.constraints
    if scheduling.NOT_SELECTED in sentence:
        constraints = replace(constraints, node_selector=())
    if scheduling.UNTOLERATED in sentence:
        constraints = replace(constraints, tolerations=(Toleration(operator="Exists"),))
    changed = []
    for one in cluster:
        if scheduling.UNSCHEDULABLE in sentence:
            one = replace(one, unschedulable=False)  # noqa: PLW2901
        if one.name in sentence and one.state is not None:
            one = replace(one, requested={}).with_state(one.state.emptied)  # noqa: PLW2901
        changed.append(one)
    return predict(replace(wanted, constraints=constraints), changed)


CLUSTERS = st.lists(
    st.lists(st.sampled_from(["tainted", "cordoned", "ssd", "busy", "full"]), max_size=3, unique=True).map(
        " ".join
    ),
    min_size=1,
    max_size=6,
)


@given(cluster=CLUSTERS, cpus=st.integers(1, 16), selects=st.booleans())
def test_without_what_the_headline_names_the_pod_would_be_admitted(
    cluster: list[str], cpus: int, *, selects: bool
) -> None:
    """The law; amounts are gone once the named node is empty."""
    wanted = pod("p", cpu=cpus, nodeSelector=SSD) if selects else pod("p", cpu=cpus)
    there = nodes(*cluster)
    said = predict(wanted, there)
    if said.verdict == ADMISSIBLE:
        return
    assert without(said, wanted, there).verdict == ADMISSIBLE, said.sentence


def test_unknown_tainted_node_is_not_said_to_reject() -> None:
    gone = Unknown("LeaseExpired", "silent")
    tainted = node("worker-1", "tainted").with_placement(gone)
    assert predict(pod("p", cpu=4), [tainted]).sentence == scheduling.UNTOLERATED
