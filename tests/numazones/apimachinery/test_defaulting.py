"""Defaults that the API server sets: a real one (1.36) stored the same for pods of all these kinds."""

from collections.abc import Mapping
from typing import Any

import pytest

from numazones.apimachinery.defaulting import Defaults, created_spec
from numazones.cluster.cluster import ClusterPod
from numazones.kubelet.demand import QOSClass


def limit_range(namespace: str = "team", **item: Any) -> dict[str, Any]:
    return {
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": namespace},
        "spec": {"limits": [{"type": "Container", **item}]},
    }


def container(**resources: Mapping[str, str]) -> dict[str, Any]:
    return {"name": "main", "resources": resources} if resources else {"name": "main"}


@pytest.mark.parametrize(
    ("resources", "stored"),
    [
        pytest.param({}, {}, id="nothing stays nothing"),
        pytest.param(
            {"limits": {"cpu": "4", "memory": "8Gi"}},
            {"requests": {"cpu": "4", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "8Gi"}},
            id="requests default to limits",
        ),
        pytest.param(
            {"limits": {"cpu": "4", "vendor.example/nic": "1"}, "requests": {"cpu": "2"}},
            {
                "requests": {"cpu": "2", "vendor.example/nic": "1"},
                "limits": {"cpu": "4", "vendor.example/nic": "1"},
            },
            id="each resource by itself",
        ),
        pytest.param(
            {"requests": {"cpu": "0.5", "memory": "1024Ki"}},
            {"requests": {"cpu": "500m", "memory": "1Mi"}},
            id="quantities become canonical",
        ),
    ],
)
def test_containers_are_stored_with_defaults(resources: dict[str, Any], stored: dict[str, Any]) -> None:
    made = created_spec({"containers": [container(**resources)]}, namespace="team")
    assert made["containers"][0].get("resources", {}) == stored


def test_a_template_with_limits_only_makes_a_guaranteed_pod() -> None:
    spec = created_spec({"containers": [container(limits={"cpu": "4", "memory": "8Gi"})]}, namespace="team")
    pod = ClusterPod.from_api({"metadata": {"name": "p", "uid": "u"}, "spec": spec})
    assert pod.admission is not None
    assert pod.admission.qos is QOSClass.GUARANTEED
    assert [demand.cpus for demand in pod.admission.demand().demands] == [4]
    assert pod.requests["cpu"] == 4000


def test_a_limit_range_fills_what_a_container_leaves_open() -> None:
    defaults = Defaults.of(
        [limit_range(default={"cpu": "2", "memory": "1Gi"}, defaultRequest={"cpu": "1", "memory": "1Gi"})]
    )
    spec = {"containers": [container(limits={"memory": "4Gi"})]}
    made = created_spec(spec, namespace="team", defaults=defaults)
    assert made["containers"][0]["resources"] == {
        "requests": {"cpu": "1", "memory": "4Gi"},
        "limits": {"cpu": "2", "memory": "4Gi"},
    }


@pytest.mark.parametrize("found", [limit_range("other", default={"cpu": "2"}), limit_range(type="Pod")])
def test_limits_of_other_namespaces_and_pods_say_nothing_of_containers(found: dict[str, Any]) -> None:
    spec = {"containers": [container()]}
    made = created_spec(spec, namespace="team", defaults=Defaults.of([found]))
    assert not made["containers"][0].get("resources")


def test_a_runtime_class_adds_overhead_selector_and_tolerations() -> None:
    kata = {
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "overhead": {"podFixed": {"cpu": "0.25", "memory": "128Mi"}},
        "scheduling": {
            "nodeSelector": {"kata": "yes"},
            "tolerations": [{"key": "kata", "operator": "Exists"}],
        },
    }
    spec = {"runtimeClassName": "kata", "nodeSelector": {"zone": "a"}, "containers": [container()]}
    made = created_spec(spec, namespace="team", defaults=Defaults.of([kata]))
    assert made["overhead"] == {"cpu": "250m", "memory": "128Mi"}
    assert made["nodeSelector"] == {"zone": "a", "kata": "yes"}
    assert made["tolerations"] == [{"key": "kata", "operator": "Exists"}]


@pytest.mark.parametrize(
    "says",
    [
        {"overhead": {"podFixed": {"cpu": "1"}}},
        {"scheduling": {"nodeSelector": {"kata": "yes"}}},
        {"scheduling": {"tolerations": [{"operator": "Exists"}]}},
        {},
    ],
)
def test_runtime_class_adds_only_what_it_says(says: dict[str, Any]) -> None:
    kata = {"kind": "RuntimeClass", "metadata": {"name": "kata"}, **says}
    spec = {"runtimeClassName": "kata", "containers": [container()]}
    made = created_spec(spec, namespace="team", defaults=Defaults.of([kata]))
    said = {"overhead": says.get("overhead", {}).get("podFixed"), **says.get("scheduling", {})}
    fields = ("overhead", "nodeSelector", "tolerations")
    assert {name: made.get(name) for name in fields} == {name: said.get(name) for name in fields}


@pytest.mark.parametrize(
    ("spec", "priority"),
    [
        pytest.param({}, 5, id="the global default"),
        pytest.param({"priorityClassName": "high"}, 1000, id="its class"),
        pytest.param({"priorityClassName": "gone"}, 0, id="a class that is not there"),
        pytest.param({"priority": 7}, 7, id="as written"),
    ],
)
def test_priority_comes_from_the_class(spec: dict[str, Any], priority: int) -> None:
    classes = Defaults.of(
        [
            {"kind": "PriorityClass", "metadata": {"name": "low"}, "value": 5, "globalDefault": True},
            {"kind": "PriorityClass", "metadata": {"name": "high"}, "value": 1000},
        ]
    )
    made = created_spec({**spec, "containers": [container()]}, namespace="team", defaults=classes)
    assert made["priority"] == priority


def test_pod_level_requests_default_to_the_containers_then_to_limits() -> None:
    spec = {
        "resources": {"limits": {"cpu": "8", "memory": "16Gi", "vendor.example/nic": "1"}},
        "initContainers": [
            {**container(requests={"cpu": "1"}), "restartPolicy": "Always"},
            container(requests={"cpu": "5"}),
        ],
        "containers": [container(requests={"cpu": "2"})],
    }
    made = created_spec(spec, namespace="team")
    assert made["resources"]["requests"] == {"cpu": "6", "memory": "16Gi"}
