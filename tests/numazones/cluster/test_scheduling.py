"""Nodes that the default scheduler rules out, with its own words for it."""

from typing import Any

import pytest

from numazones.apimachinery.quantity import InvalidQuantity
from numazones.apimachinery.taints import Taint
from numazones.cluster import requests, scheduling
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.constraints import Constraints

GPU = Taint("vendor.example/gpu", "yes", "NoSchedule")


def worker(**fields: Any) -> ClusterNode:
    return ClusterNode("worker-1", **fields)


def held(number: int) -> dict[str, ClusterPod]:
    return {f"u{index}": ClusterPod("ns", f"p{index}", f"u{index}") for index in range(number)}


def constraints(**spec: Any) -> Constraints:
    return Constraints.from_api(spec)


def affinity(*terms: dict[str, Any]) -> Constraints:
    return constraints(
        affinity={
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}
            }
        }
    )


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        ({"key": "vendor.example/gpu", "value": "yes"}, GPU, True),
        ({"key": "vendor.example/gpu", "value": "no"}, GPU, False),
        ({"key": "vendor.example/gpu"}, GPU, False),
        ({"key": "vendor.example/gpu", "operator": "Exists"}, GPU, True),
        ({"operator": "Exists"}, GPU, True),
        ({"operator": "Exists", "effect": "NoExecute"}, GPU, False),
        ({"key": "other", "operator": "Exists"}, GPU, False),
        (
            {"key": "vendor.example/gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"},
            GPU,
            True,
        ),
        ({"key": "level", "operator": "Gt", "value": "1"}, Taint("level", "5", "NoSchedule"), False),
    ],
)
def test_a_toleration_covers_a_taint(toleration: dict[str, str], taint: Taint, *, expected: bool) -> None:
    assert constraints(tolerations=[toleration]).tolerates(taint) is expected


@pytest.mark.parametrize(
    ("node", "spec", "expected"),
    [
        (worker(), {}, ()),
        (worker(unschedulable=True), {}, ("node(s) were unschedulable",)),
        (
            worker(unschedulable=True),
            {"tolerations": [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}]},
            (),
        ),
        (worker(taints=(GPU,)), {}, ("node(s) had untolerated taint(s)",)),
        (worker(taints=(Taint("a", "", "NoExecute"),)), {}, ("node(s) had untolerated taint(s)",)),
        (worker(taints=(Taint("a", "", "PreferNoSchedule"),)), {}, ()),
        (
            worker(taints=(GPU, Taint("b"))),
            {"tolerations": [{"key": "b", "operator": "Exists"}]},
            ("node(s) had untolerated taint(s)",),
        ),
        (
            worker(labels={"disk": "hdd"}),
            {"nodeSelector": {"disk": "ssd"}},
            ("node(s) didn't match Pod's node affinity/selector",),
        ),
        (worker(labels={"disk": "ssd", "zone": "a"}), {"nodeSelector": {"disk": "ssd"}}, ()),
        (
            worker(unschedulable=True, taints=(GPU,)),
            {"nodeSelector": {"disk": "ssd"}},
            (
                "node(s) were unschedulable",
                "node(s) had untolerated taint(s)",
                "node(s) didn't match Pod's node affinity/selector",
            ),
        ),
        (worker(), {"schedulingGates": [{"name": "numazones.io/admission"}]}, ()),
    ],
)
def test_placement_reasons_are_all_given(
    node: ClusterNode, spec: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert scheduling.placement_obstacles(constraints(**spec), node) == expected


@pytest.mark.parametrize(
    ("labels", "term", "expected"),
    [
        ({"zone": "a"}, expression("zone", "In", "a", "b"), True),
        ({"zone": "c"}, expression("zone", "In", "a", "b"), False),
        ({}, expression("zone", "In", "a"), False),
        ({"zone": "a"}, expression("zone", "In"), False),
        ({"zone": "c"}, expression("zone", "NotIn", "a"), True),
        ({"zone": "a"}, expression("zone", "NotIn", "a"), False),
        ({}, expression("zone", "NotIn", "a"), True),
        ({"zone": ""}, expression("zone", "Exists"), True),
        ({}, expression("zone", "Exists"), False),
        ({"zone": "a"}, expression("zone", "Exists", "a"), False),
        ({}, expression("zone", "DoesNotExist"), True),
        ({"zone": "a"}, expression("zone", "DoesNotExist"), False),
        ({"cores": "64"}, expression("cores", "Gt", "32"), True),
        ({"cores": "32"}, expression("cores", "Gt", "32"), False),
        ({"cores": "16"}, expression("cores", "Lt", "32"), True),
        ({"cores": "many"}, expression("cores", "Gt", "32"), False),
        ({}, expression("cores", "Lt", "32"), False),
        ({"cores": "64"}, expression("cores", "Gt", "x"), False),
        ({"cores": "64"}, expression("cores", "Gt", "9" * 6000), False),  # above 64 bits: none can meet it
        ({"cores": "64"}, expression("cores", "Lt", "9" * 6000), False),
        ({"cores": "64"}, expression("cores", "Gt", "-" + "9" * 6000), False),
        ({"cores": "64"}, expression("cores", "Gt", "0" * 6000 + "32"), True),
        ({"cores": "9" * 6000}, expression("cores", "Gt", "1"), False),
        ({"cores": "9223372036854775807"}, expression("cores", "Gt", "9223372036854775806"), True),
        ({"cores": "9223372036854775808"}, expression("cores", "Gt", "1"), False),
        ({"cores": "-9223372036854775808"}, expression("cores", "Lt", "-9223372036854775807"), True),
        ({"cores": "+64"}, expression("cores", "Gt", "+32"), True),
        ({"cores": "6_4"}, expression("cores", "Gt", "32"), False),
        ({"cores": "64"}, expression("cores", "Gt", "1", "2"), False),
        ({"cores": "64"}, expression("cores", "Around", "64"), False),
        ({}, {}, False),
        ({}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-1"]}]}, True),
        ({}, {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-2"]}]}, False),
        ({}, {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["worker-2"]}]}, True),
        ({}, {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["worker-1"]}]}, False),
        ({}, {"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}, False),
        (
            {"zone": "a"},
            {
                **expression("zone", "In", "a"),
                "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["worker-2"]}],
            },
            False,
        ),
    ],
)
def test_a_term_of_node_affinity_selects(
    labels: dict[str, str], term: dict[str, Any], *, expected: bool
) -> None:
    assert affinity(term).selects("worker-1", labels) is expected


def test_one_affinity_term_suffices_if_the_selector_matches() -> None:
    both = affinity(expression("zone", "In", "a"), expression("zone", "In", "b"))
    assert both.selects("n", {"zone": "b"})
    assert not both.selects("n", {"zone": "c"})
    assert not affinity().selects("n", {"zone": "a"})
    strict = constraints(nodeSelector={"disk": "ssd"})
    assert not strict.selects("n", {"zone": "a"})


@pytest.mark.parametrize(
    ("requests", "node", "expected"),
    [
        ({}, worker(pod_slots=2, pods=held(1)), ()),
        ({}, worker(pod_slots=2, pods=held(2)), ("Too many pods",)),
        ({"cpu": 500}, worker(allocatable={"cpu": 4000}, requested={"cpu": 3500}), ()),
        ({"cpu": 501}, worker(allocatable={"cpu": 4000}, requested={"cpu": 3500}), ("Insufficient cpu",)),
        ({"cpu": 0, "vendor.example/nic": 0}, worker(), ()),
        (
            {"cpu": 1, "memory": 1, "vendor.example/nic": 1},
            worker(pod_slots=0),
            ("Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient vendor.example/nic"),
        ),
        # A node on which more is requested than it has (it shrank) still takes a pod that asks for nothing.
        ({"cpu": 0}, worker(allocatable={"cpu": 1000}, requested={"cpu": 2000}), ()),
    ],
)
def test_resource_reasons_are_all_given(
    requests: dict[str, int], node: ClusterNode, expected: tuple[str, ...]
) -> None:
    assert scheduling.resource_obstacles(requests, node) == expected


def test_shortage_names_requested_and_free_amounts() -> None:
    node = worker(
        allocatable={"cpu": 8000, "memory": 8 << 30},
        requested={"cpu": 6100, "memory": 9 << 30},
        pod_slots=2,
        pods=held(2),
    )
    assert [str(lack) for lack in scheduling.lacks({"cpu": 4000, "memory": 1 << 30}, node)] == [
        "Too many pods: 1 requested, 0 free",
        "Insufficient cpu: 4 requested, 1.9 free",
        "Insufficient memory: 1Gi requested, 0 free",
    ]


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("memroy", "memory"),
        ("CPU", "cpu"),
        ("ephemeral-storge", "ephemeral-storage"),
        ("hugepage-2Mi", "hugepages-2Mi"),
        ("hugepages-2mi", "hugepages-2Mi"),
        ("hugepages-4Mi", ""),
        ("vendor.example/gpv", "vendor.example/gpu"),
        ("pod", ""),
        ("disk", ""),
    ],
)
def test_misspelled_resource_comes_with_the_one_meant(asked: str, meant: str) -> None:
    offered = ("cpu", "memory", "pods", "hugepages-2Mi", "vendor.example/gpu")
    node = worker(allocatable=dict.fromkeys(offered, 1000))
    assert [lack.instead for lack in scheduling.lacks({asked: 1}, node)] == [meant]


def container(**requests: str) -> dict[str, Any]:
    return {"name": "c", "resources": {"requests": requests}}


def sidecar(**requests: str) -> dict[str, Any]:
    return container(**requests) | {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"containers": [container(cpu="1"), container(cpu="500m", memory="1Gi")]},
            {"cpu": 1500, "memory": 2**30},
        ),
        ({"containers": [container(cpu="1")], "initContainers": [container(cpu="3")]}, {"cpu": 3000}),
        (
            {"containers": [container(cpu="2")], "initContainers": [container(cpu="1", memory="5")]},
            {"cpu": 2000, "memory": 5},
        ),
        # A sidecar runs beside everything that starts after it.
        (
            {"containers": [container(cpu="1")], "initContainers": [sidecar(cpu="2"), container(cpu="3")]},
            {"cpu": 5000},
        ),
        (
            {"containers": [container(cpu="4")], "initContainers": [container(cpu="3"), sidecar(cpu="2")]},
            {"cpu": 6000},
        ),
        (
            {"containers": [container(cpu="1")], "overhead": {"cpu": "250m", "memory": "10Mi"}},
            {"cpu": 1250, "memory": 10 * 2**20},
        ),
        # Requests at pod level replace the sums of the containers, resource by resource.
        (
            {
                "containers": [container(cpu="1", memory="1Gi", **{"vendor.example/nic": "1"})],
                "resources": {"requests": {"cpu": "8", "hugepages-2Mi": "4Mi"}},
            },
            {"cpu": 8000, "memory": 2**30, "vendor.example/nic": 1, "hugepages-2Mi": 4 * 2**20},
        ),
        ({}, {}),
    ],
)
def test_the_scheduler_counts_the_larger_of_start_up_and_running(
    spec: dict[str, Any], expected: dict[str, int]
) -> None:
    assert requests.effective_requests({"spec": spec}) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ([], 6000),
        ([{"type": "PodResizePending", "reason": "Deferred"}], 6000),
        ([{"type": "PodResizePending", "reason": "Infeasible"}], 4000),
    ],
)
def test_a_resize_counts_the_larger_of_wish_and_grant(condition: list[dict[str, str]], expected: int) -> None:
    status = {
        "conditions": condition,
        "containerStatuses": [
            {"name": "c", "resources": {"requests": {"cpu": "2"}}, "allocatedResources": {"cpu": "4"}}
        ],
    }
    pod = {"spec": {"containers": [container(cpu="6")]}, "status": status}
    assert requests.effective_requests(pod) == {"cpu": expected}


def test_a_malformed_amount_is_an_error_that_quotes_it() -> None:
    with pytest.raises(InvalidQuantity, match="twelve"):
        requests.effective_requests({"spec": {"containers": [container(cpu="twelve")]}})
