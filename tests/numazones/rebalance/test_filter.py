"""Every rule that keeps a pod where it is, with the message people get to read."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from numazones.api.rebalance import ProtectionSettings
from numazones.apimachinery import timestamp
from numazones.apimachinery.label_selector import InvalidSelector
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.rebalance.budgets import Budget, BudgetHeadroom
from numazones.rebalance.filter import (
    EVICT,
    EvictionContext,
    eviction_cost,
    objections,
    order,
    protection,
    qos_rank,
)
from numazones.rebalance.protections import InvalidProtections, Protections

NOW = datetime.fromisoformat("2026-01-31T12:00:00Z")
PREFER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
COST = "scheduling.koordinator.sh/eviction-cost"

REPLICA_SET = {"kind": "ReplicaSet", "name": "web", "uid": "rs", "controller": True}
DAEMON_SET = {"kind": "DaemonSet", "name": "agent", "uid": "ds", "controller": True}
JOB = {"kind": "Job", "name": "batch", "uid": "job"}


def pod(
    *,
    name: str = "web-1",
    owners: tuple[dict[str, Any], ...] = (REPLICA_SET,),
    annotations: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
    phase: str = "Running",
    started: str | None = "2026-01-31T11:00:00Z",
    deleting: bool = False,
    ready: bool = True,
    cpu: str = "1",
    guaranteed: bool = True,
    **spec: Any,
) -> ClusterPod:
    """A Guaranteed pod of a ReplicaSet that nothing speaks against, but for what is asked for."""
    amounts = {"cpu": cpu, "memory": "1Gi"}
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": name, "labels": labels or {}}
    metadata |= {"ownerReferences": list(owners), "annotations": annotations or {}}
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-31T11:59:00Z"
    status: dict[str, Any] = {
        "phase": phase,
        "conditions": [{"type": "Ready", "status": str(ready)}],
    }
    if started:
        status["startTime"] = started
    resources = {"requests": amounts} | ({"limits": amounts} if guaranteed else {})
    body = {
        "metadata": metadata,
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "resources": resources}]} | spec,
        "status": status,
    }
    return ClusterPod.from_api(body)


def volumes(*sources: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"name": f"v{index}", **source} for index, source in enumerate(sources)]


def pvc(name: str = "data") -> dict[str, Any]:
    return {"persistentVolumeClaim": {"claimName": name}}


def disabled(*names: str) -> dict[str, Any]:
    return {"podProtections": {"defaultDisabled": list(names)}}


def enabled(*names: str, **config: Any) -> dict[str, Any]:
    return {"podProtections": {"extraEnabled": list(names), **({"config": config} if config else {})}}


def protections_of(settings: dict[str, Any]) -> Protections:
    return Protections.of(ProtectionSettings.model_validate(settings), {"batch": 500})


FAST = {"PodsWithPVC": {"protectedStorageClasses": [{"name": "fast"}]}}
THRESHOLD = {"priorityThreshold": {"value": 10000}}
AGE = {"minPodAge": "50m"}
IN_SHOP = {"matchLabels": {"team": "shop"}}

MIRROR_POD = {"kubernetes.io/config.mirror": "abc"}
FROM_FILE = {"kubernetes.io/config.source": "file"}
CRITICAL = "pod has system critical priority and is protected against eviction"
LOCAL = "pod has local storage and is protected against eviction"
BARE = "nothing would recreate it"
NO_PDB = "pod does not have a PodDisruptionBudget and is protected against eviction"
NO_FIT = (
    "pod does not fit on any other node because of nodeSelector(s), Taint(s), requests, "
    "or nodes marked as unschedulable"
)

BUDGET = Budget.from_api(
    {
        "metadata": {"namespace": "shop", "name": "web", "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": 1, "observedGeneration": 1},
    }
)
UNREADABLE_BUDGET = Budget.from_api(
    {
        "metadata": {"namespace": "shop", "name": "odd"},
        "spec": {"selector": {"matchExpressions": [{"key": "app", "operator": "Near"}]}},
    }
)
SURROUNDINGS = EvictionContext(
    now=NOW,
    replicas={"rs": 2, "job": 5},
    headroom=BudgetHeadroom.of([BUDGET, UNREADABLE_BUDGET]),
    storage_classes={("shop", "data"): "fast", ("shop", "archive"): "slow"},
    namespace_labels={"shop": {"team": "shop"}},
)


def node(name: str, *, ready: bool = True, **spec: Any) -> ClusterNode:
    return ClusterNode.from_api(
        {
            "metadata": {"name": name, "labels": {"zone": name}},
            "spec": spec,
            "status": {
                "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "10"},
                "conditions": [{"type": "Ready", "status": str(ready)}],
            },
        }
    )


CLUSTER = Cluster.of([node("n1"), node("n2")], [])

ROWS: list[tuple[str, ClusterPod, dict[str, Any], list[str]]] = [
    ("an ordinary pod of a ReplicaSet may go", pod(), {}, []),
    # the evict annotation
    (
        "the evict annotation lets a DaemonSet pod go",
        pod(owners=(DAEMON_SET,), annotations={EVICT: "true"}),
        {},
        [],
    ),
    ("the evict annotation counts with any value", pod(owners=(), annotations={EVICT: ""}), {}, []),
    (
        "the evict annotation beats critical priority",
        pod(priority=2_000_001_000, annotations={EVICT: "x"}),
        {},
        [],
    ),
    (
        "the evict annotation beats local storage",
        pod(volumes=volumes({"emptyDir": {}}), annotations={EVICT: "true"}),
        {},
        [],
    ),
    (
        "the evict annotation beats a mandatory wish to stay",
        pod(annotations={EVICT: "true", PREFER: "true"}),
        {"noEvictionPolicy": "Mandatory"},
        [],
    ),
    (
        "the evict annotation does not move a mirror pod",
        pod(annotations={EVICT: "true", **MIRROR_POD}),
        {},
        ["pod is a mirror pod"],
    ),
    (
        "the evict annotation does not move a static pod",
        pod(annotations={EVICT: "true", **FROM_FILE}),
        {},
        ["pod is a static pod"],
    ),
    (
        "the evict annotation does not move a terminating pod",
        pod(annotations={EVICT: "true"}, deleting=True),
        {},
        ["pod is terminating"],
    ),
    (
        "the evict annotation does not beat what is checked right before eviction",
        pod(annotations={EVICT: "true"}),
        {"namespaceLabelSelector": {"matchLabels": {"team": "other"}}},
        ["labels of the pod's namespace do not match namespaceLabelSelector"],
    ),
    # wishes
    ("prefer-no-eviction alone does not protect", pod(annotations={PREFER: "true"}), {}, []),
    (
        "prefer-no-eviction protects where the policy says Mandatory",
        pod(annotations={PREFER: "true"}),
        {"noEvictionPolicy": "Mandatory"},
        ["pod asks not to be evicted and the policy makes that mandatory"],
    ),
    ("an eviction cost does not protect", pod(annotations={COST: "1000"}), {}, []),
    (
        "the highest eviction cost means never",
        pod(annotations={COST: "2147483647"}),
        {},
        ["pod has the highest eviction cost, which rules out eviction"],
    ),
    ("an eviction cost that is not a number is none", pod(annotations={COST: "much"}), {}, []),
    # pods that eviction does not move
    ("a mirror pod stays", pod(annotations=MIRROR_POD), {}, ["pod is a mirror pod"]),
    ("a pod from a file is static", pod(annotations=FROM_FILE), {}, ["pod is a static pod"]),
    ("a pod from the API is not static", pod(annotations={"kubernetes.io/config.source": "api"}), {}, []),
    ("a terminating pod stays", pod(deleting=True), {}, ["pod is terminating"]),
    # priority
    ("system critical priority protects", pod(priority=2_000_000_000), {}, [CRITICAL]),
    ("the highest priority of users does not", pod(priority=1_999_999_999), {}, []),
    (
        "critical pods may go where the policy says so",
        pod(priority=2_000_000_000),
        disabled("SystemCriticalPods"),
        [],
    ),
    (
        "a priority at the threshold protects",
        pod(priority=10000),
        THRESHOLD,
        ["pod has higher priority than specified priority class threshold: 10000 ≥ 10000"],
    ),
    ("a priority below the threshold does not", pod(priority=9999), THRESHOLD, []),
    ("no priority is below any threshold", pod(), THRESHOLD, []),
    (
        "without protection of critical pods the threshold is void",
        pod(priority=10001),
        THRESHOLD | disabled("SystemCriticalPods"),
        [],
    ),
    (
        "a threshold by class",
        pod(priority=600),
        {"priorityThreshold": {"name": "batch"}},
        ["pod has higher priority than specified priority class threshold: 600 ≥ 500"],
    ),
    (
        "critical and above the threshold are two reasons",
        pod(priority=2_000_000_000),
        THRESHOLD,
        [CRITICAL, "pod has higher priority than specified priority class threshold: 2000000000 ≥ 10000"],
    ),
    # owners
    ("a bare pod stays", pod(owners=()), {}, [BARE]),
    (
        "a bare running pod stays even without that protection",
        pod(owners=()),
        disabled("FailedBarePods"),
        ["nothing would recreate it, and it is not in phase Failed"],
    ),
    ("a bare failed pod may then go", pod(owners=(), phase="Failed"), disabled("FailedBarePods"), []),
    ("a bare failed pod stays by default", pod(owners=(), phase="Failed"), {}, [BARE]),
    (
        "a DaemonSet's pod stays",
        pod(owners=(DAEMON_SET,)),
        {},
        ["daemonset pods are protected against eviction"],
    ),
    (
        "a DaemonSet's pod may go where the policy says so",
        pod(owners=(DAEMON_SET,)),
        disabled("DaemonSetPods"),
        [],
    ),
    (
        "one DaemonSet among the owners is enough",
        pod(owners=(REPLICA_SET, DAEMON_SET)),
        {},
        ["daemonset pods are protected against eviction"],
    ),
    # storage
    ("an emptyDir protects", pod(volumes=volumes({"emptyDir": {}})), {}, [LOCAL]),
    ("a hostPath protects", pod(volumes=volumes({"hostPath": {"path": "/x"}})), {}, [LOCAL]),
    ("a configMap does not", pod(volumes=volumes({"configMap": {"name": "x"}})), {}, []),
    (
        "local storage may go where the policy says so",
        pod(volumes=volumes({"emptyDir": {}})),
        disabled("PodsWithLocalStorage"),
        [],
    ),
    ("a PVC does not protect by default", pod(volumes=volumes(pvc())), {}, []),
    (
        "a PVC protects where the policy says so",
        pod(volumes=volumes(pvc())),
        enabled("PodsWithPVC"),
        ["pod with PVC data is protected against eviction"],
    ),
    (
        "a protected storage class protects",
        pod(volumes=volumes(pvc())),
        enabled("PodsWithPVC", **FAST),
        ["pod using protected storage class fast (PVC data)"],
    ),
    (
        "another storage class does not",
        pod(volumes=volumes(pvc("archive"))),
        enabled("PodsWithPVC", **FAST),
        [],
    ),
    (
        "a claim that cannot be found protects",
        pod(volumes=volumes(pvc("lost"))),
        enabled("PodsWithPVC", **FAST),
        ["storage class of PVC lost is unknown, so the pod is protected"],
    ),
    (
        "each claim is looked at",
        pod(volumes=volumes(pvc("archive"), pvc())),
        enabled("PodsWithPVC", **FAST),
        ["pod using protected storage class fast (PVC data)"],
    ),
    # budgets and claims
    ("no budget, protected where the policy says so", pod(), enabled("PodsWithoutPDB"), [NO_PDB]),
    ("no budget does not protect by default", pod(), {}, []),
    ("a budget that selects the pod satisfies", pod(labels={"app": "web"}), enabled("PodsWithoutPDB"), []),
    (
        "claimed devices protect where the policy says so",
        pod(resourceClaims=[{"name": "gpu"}]),
        enabled("PodsWithResourceClaims"),
        ["pod has ResourceClaims and is protected against eviction"],
    ),
    ("claimed devices do not protect by default", pod(resourceClaims=[{"name": "gpu"}]), {}, []),
    # selection
    (
        "labels outside the selector",
        pod(labels={"team": "bank"}),
        {"labelSelector": IN_SHOP},
        ["pod labels do not match the labelSelector of the policy"],
    ),
    ("labels inside the selector", pod(labels={"team": "shop"}), {"labelSelector": IN_SHOP}, []),
    ("an empty selector takes all", pod(), {"labelSelector": {}}, []),
    (
        "an excluded namespace",
        pod(),
        {"namespaces": {"exclude": ["shop"]}},
        ["namespace shop is outside the policy"],
    ),
    (
        "not among the included namespaces",
        pod(),
        {"namespaces": {"include": ["bank"]}},
        ["namespace shop is outside the policy"],
    ),
    ("among the included namespaces", pod(), {"namespaces": {"include": ["shop"]}}, []),
    ("a namespace with the right labels", pod(), {"namespaceLabelSelector": IN_SHOP}, []),
    (
        "a node outside the node selector",
        pod(),
        {"nodeSelector": {"matchLabels": {"zone": "n2"}}},
        ["node n1 is outside the policy's nodeSelector"],
    ),
    ("a node inside the node selector", pod(), {"nodeSelector": {"matchLabels": {"zone": "n1"}}}, []),
    # number and age
    (
        "fewer replicas than the minimum",
        pod(),
        {"minReplicas": 3},
        ["owner has 2 replicas which is less than minReplicas of 3"],
    ),
    ("as many replicas as the minimum", pod(), {"minReplicas": 2}, []),
    ("several owners are not counted", pod(owners=(REPLICA_SET, JOB)), {"minReplicas": 3}, []),
    ("a minimum of one asks for nothing", pod(owners=({**JOB, "uid": "?"},)), {"minReplicas": 1}, []),
    (
        "younger than the minimum age",
        pod(started="2026-01-31T11:50:00Z"),
        AGE,
        ["pod age is not older than MinPodAge: 0:50:00"],
    ),
    ("older than the minimum age", pod(started="2026-01-31T11:00:00Z"), AGE, []),
    ("of unknown age", pod(started=None), AGE, ["pod age is not older than MinPodAge: 0:50:00"]),
    # fit
    ("fits on another node", pod(), {"nodeFit": True}, []),
    ("fits on no other node", pod(cpu="5"), {"nodeFit": True}, [NO_FIT]),
    ("its own node does not count", pod(nodeSelector={"zone": "n1"}), {"nodeFit": True}, [NO_FIT]),
    # everything at once
    (
        "all reasons are given, not the first alone",
        pod(
            owners=(),
            priority=2_000_000_000,
            volumes=volumes({"emptyDir": {}}),
            deleting=True,
            annotations=MIRROR_POD,
        ),
        AGE | {"labelSelector": IN_SHOP},
        [
            "pod is a mirror pod",
            "pod is terminating",
            CRITICAL,
            BARE,
            LOCAL,
            "pod labels do not match the labelSelector of the policy",
        ],
    ),
]


@pytest.mark.parametrize(
    ("subject", "settings", "messages"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS]
)
def test_what_speaks_against_evicting_a_pod(
    subject: ClusterPod, settings: dict[str, Any], messages: list[str]
) -> None:
    protections = protections_of(settings)
    found = objections(subject, protections, SURROUNDINGS, cluster=CLUSTER)
    assert [objection.message for objection in found] == messages


RULES = {
    "pod is a mirror pod": "MirrorPods",
    "pod is a static pod": "StaticPods",
    "pod is terminating": "TerminatingPods",
    "pod asks not to be evicted": "PreferNoEviction",
    "pod has the highest eviction cost": "EvictionCost",
    "nothing would recreate it": "FailedBarePods",
    "daemonset pods are protected": "DaemonSetPods",
    "pod has ResourceClaims": "PodsWithResourceClaims",
    "pod has system critical priority": "SystemCriticalPods",
    "pod has higher priority than": "PriorityThreshold",
    "pod has local storage": "PodsWithLocalStorage",
    "pod with PVC": "PodsWithPVC",
    "storage class of PVC": "PodsWithPVC",
    "pod using protected storage class": "PodsWithPVC",
    "pod does not have a PodDisruptionBudget": "PodsWithoutPDB",
    "pod labels do not match": "LabelSelector",
    "namespace ": "Namespaces",
    "owner has ": "MinReplicas",
    "pod age is not older": "MinPodAge",
    "labels of the pod's namespace": "NamespaceLabelSelector",
    "pod does not fit on any other node": "NodeFit",
    "node ": "NodeSelector",
}
"""Beginnings of what is said → the rule as policies and metrics name it."""


def test_each_objection_names_its_rule() -> None:
    seen = set()
    for _, subject, settings, _ in ROWS:
        protections = protections_of(settings)
        for found in objections(subject, protections, SURROUNDINGS, cluster=CLUSTER):
            (rule,) = (rule for text, rule in RULES.items() if found.message.startswith(text))
            assert found.rule == rule, found.message
            seen.add(rule)
    assert seen == set(RULES.values())


def test_the_pods_of_each_owner_are_counted() -> None:
    pods = [pod(name="a"), pod(name="b"), pod(name="c", owners=())]
    (owner,) = {one.uid for one in pods[0].owners}
    assert EvictionContext.count_replicas(pods) == {owner: 2}
    assert EvictionContext.count_replicas([]) == {}


@pytest.mark.parametrize(
    ("number", "wanted", "kept"), [(1, 2, True), (2, 2, False), (2, 3, True), (0, 1, False), (None, 2, True)]
)
def test_an_owner_keeps_its_least_number_of_pods(number: int | None, wanted: int, kept: bool) -> None:  # noqa: FBT001
    subject = pod()
    replicas = {} if number is None else {subject.owners[0].uid: number}
    found = objections(
        subject, protections_of({"minReplicas": wanted}), replace(SURROUNDINGS, replicas=replicas)
    )
    replica = "1 replica" if number == 1 else f"{number or 0} replicas"
    message = f"owner has {replica} which is less than minReplicas of {wanted}"
    assert [one.message for one in found] == ([message] if kept else [])


def test_pod_is_old_enough_at_the_minimum_age() -> None:
    protections = protections_of({"minPodAge": "1h"})
    for minutes, kept in ((59, True), (60, False)):
        started = timestamp.format(SURROUNDINGS.now - timedelta(minutes=minutes))
        assert bool(objections(pod(started=started), protections, SURROUNDINGS)) is kept


def test_default_protection_names_the_pods_own_traits() -> None:
    assert protection(pod()) == ""
    assert protection(pod(deleting=True)) == "pod is terminating"
    assert (
        protection(pod(volumes=volumes({"emptyDir": {}})))
        == "pod has local storage and is protected against eviction"
    )


def test_unreadable_pod_is_evicted_like_a_guaranteed_one() -> None:
    unread = replace(pod(), admission=None)
    assert [qos_rank(one) for one in (pod(guaranteed=False), pod(), unread)] == [1, 2, 2]


def test_there_are_some_sixty_rows_and_none_twice() -> None:
    assert len(ROWS) >= 60
    assert len({row[0] for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    "neighbour",
    [
        node("n2", unschedulable=True),
        node("n2", taints=[{"key": "k", "effect": "NoSchedule"}]),
        node("n2", ready=False),
    ],
    ids=["cordoned", "tainted", "not ready"],
)
def test_pod_does_not_fit_on_nodes_that_accept_no_pods(neighbour: ClusterNode) -> None:
    cluster = Cluster.of([node("n1"), neighbour], [])
    found = objections(pod(), protections_of({"nodeFit": True}), SURROUNDINGS, cluster=cluster)
    assert [objection.message for objection in found] == [NO_FIT]


SETTINGS = [
    (disabled("PodsWithPVC"), "podProtections.defaultDisabled: 'PodsWithPVC' is unknown"),
    (
        disabled("Nonsense"),
        "use one of PodsWithLocalStorage, SystemCriticalPods, FailedBarePods, DaemonSetPods",
    ),
    (enabled("DaemonSetPods"), "podProtections.extraEnabled: 'DaemonSetPods' is unknown"),
    (
        disabled("DaemonSetPods", "DaemonSetPods"),
        "podProtections.defaultDisabled: DaemonSetPods is listed twice",
    ),
    (enabled("PodsWithPVC", "PodsWithPVC"), "podProtections.extraEnabled: PodsWithPVC is listed twice"),
    ({"podProtections": {"config": FAST}}, "add PodsWithPVC to podProtections.extraEnabled"),
    (
        {"priorityThreshold": {"value": 1, "name": "batch"}},
        "priorityThreshold: set either value or name, not both",
    ),
    (
        {"priorityThreshold": {"value": 2_000_000_001}},
        "priorityThreshold 2000000001 is above 2000000000; higher values are reserved for the system",
    ),
    ({"priorityThreshold": {"name": "gone"}}, "priorityThreshold: no PriorityClass gone exists"),
    (
        {"noEvictionPolicy": "Sometimes"},
        "noEvictionPolicy 'Sometimes' is unknown; use Preferred or Mandatory",
    ),
    (
        {"namespaces": {"include": ["a"], "exclude": ["b"]}},
        "namespaces: set either include or exclude, not both",
    ),
]


@pytest.mark.parametrize(("settings", "message"), SETTINGS, ids=[row[1] for row in SETTINGS])
def test_settings_that_make_no_sense_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidProtections) as caught:
        protections_of(settings)
    problem = str(caught.value)
    assert problem.startswith(message) or problem.endswith(message)


@pytest.mark.parametrize("settings", [{"noEvictionPolicy": ""}, {"minReplicas": None}])
def test_settings_that_are_left_empty_are_the_defaults(settings: dict[str, Any]) -> None:
    assert protections_of(settings) == protections_of({}) == Protections()


def test_the_highest_priority_of_users_may_be_the_threshold() -> None:
    body = {"priorityThreshold": {"value": 2_000_000_000}}
    assert protections_of(body).priority_threshold == 2_000_000_000


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ({"key": "a", "operator": "Near"}, "unknown operator 'Near' on a"),
        ({"key": "a", "operator": "In"}, "In on a needs values"),
        ({"key": "a", "operator": "Exists", "values": ["x"]}, "Exists on a takes no values"),
        ({"key": "", "operator": "Exists"}, "an expression has no key"),
    ],
)
def test_selectors_that_make_no_sense_are_rejected(expression: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSelector, match=message):
        protections_of({"labelSelector": {"matchExpressions": [expression]}})


@pytest.mark.parametrize(
    ("expression", "labels", "expected"),
    [
        ({"key": "a", "operator": "In", "values": ["x", "y"]}, {"a": "y"}, True),
        ({"key": "a", "operator": "In", "values": ["x"]}, {}, False),
        ({"key": "a", "operator": "NotIn", "values": ["x"]}, {}, True),
        ({"key": "a", "operator": "NotIn", "values": ["x"]}, {"a": "x"}, False),
        ({"key": "a", "operator": "Exists"}, {"a": ""}, True),
        ({"key": "a", "operator": "DoesNotExist"}, {"a": ""}, False),
    ],
)
def test_selectors_by_expression(expression: dict[str, Any], labels: dict[str, str], expected: bool) -> None:  # noqa: FBT001
    protections = protections_of({"labelSelector": {"matchExpressions": [expression]}})
    assert (not objections(pod(labels=labels), protections, SURROUNDINGS)) is expected


def test_the_effective_list_of_protections_is_known() -> None:
    assert protections_of({}).effective == (
        "PodsWithLocalStorage",
        "SystemCriticalPods",
        "FailedBarePods",
        "DaemonSetPods",
    )
    assert protections_of({"minPodAge": "1h30m"}).min_pod_age == timedelta(minutes=90)


def test_candidates_have_a_total_order_of_eviction() -> None:
    expected = [
        pod(name="none-besteffort", cpu="0", guaranteed=False),
        pod(name="none-guaranteed"),
        pod(name="zero-burstable", priority=0, guaranteed=False),
        pod(name="zero-guaranteed", priority=0),
        pod(name="zero-guaranteed-cheap-but-asks", priority=0, annotations={PREFER: "", COST: "-5"}),
        pod(name="zero-guaranteed-dear-and-asks", priority=0, annotations={PREFER: "", COST: "5"}),
        pod(name="ten-cheap", priority=10, annotations={COST: "-1"}),
        pod(name="ten-a", priority=10),
        pod(name="ten-b", priority=10),
    ]
    shuffled = sorted(expected, key=lambda each: each.name)
    assert [each.name for each in sorted(shuffled, key=order)] == [each.name for each in expected]
    assert len({order(each) for each in expected}) == len(expected)


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        *[("5", 5), ("-7", -7), ("+7", 7), ("0", 0), ("05", 0), ("", 0), ("1.5", 0), ("٣", 0)],
        *[("2147483647", 2**31 - 1), ("2147483648", 0), ("-2147483648", -(2**31)), ("-2147483649", 0)],
    ],
)
def test_eviction_costs_are_read_as_32_bit_numbers(text: str, cost: int) -> None:
    assert eviction_cost(pod(annotations={COST: text})) == cost
