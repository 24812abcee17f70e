"""A restarting kubelet's view of a pod's requests and limits."""

from typing import Any

import pytest

from numazones.cluster.allocated import as_allocated


def pod(wanted: Any, **status: Any) -> dict[str, Any]:
    statuses = [{"name": "main", **status}]
    return {
        "spec": {"containers": [{"name": "main", "resources": wanted}]},
        "status": {"containerStatuses": statuses},
    }


def both(**amounts: str) -> dict[str, Any]:
    return {"requests": amounts, "limits": amounts}


NIC = {"vendor.example/nic": "1"}


@pytest.mark.parametrize(
    ("wanted", "status", "expected"),
    [
        (both(cpu="8"), {}, both(cpu="8")),
        (both(cpu="8"), {"allocatedResources": {"cpu": "4"}}, both(cpu="4")),
        (
            both(cpu="8", memory="1Gi", **NIC),
            {"allocatedResources": {"cpu": "4", "memory": "2Gi", **NIC}},
            both(cpu="4", memory="2Gi", **NIC),
        ),
        (
            {"requests": {"cpu": "2"}, "limits": {"cpu": "8"}},
            {"allocatedResources": {"cpu": "1"}, "resources": {"limits": {"cpu": "4"}}},
            {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}},
        ),
        (
            {"requests": {"cpu": "2", "memory": "1Gi"}},
            {"allocatedResources": {"memory": "1Gi"}},
            {"requests": {"memory": "1Gi"}, "limits": {}},
        ),
    ],
    ids=["none shown", "guaranteed", "not devices", "burstable", "added"],
)
def test_allocated_amounts_replace_those_that_are_wanted(wanted: Any, status: Any, expected: Any) -> None:
    (container,) = as_allocated(pod(wanted, **status))["spec"]["containers"]
    assert container["resources"] == expected


def test_sidecars_and_whole_pods_have_allocated_amounts_too() -> None:
    body = {
        "spec": {
            "resources": both(cpu="8"),
            "initContainers": [{"name": "proxy", "resources": both(cpu="3")}],
            "containers": [{"name": "main"}],
        },
        "status": {
            "allocatedResources": {"cpu": "4"},
            "initContainerStatuses": [{"name": "proxy", "allocatedResources": {"cpu": "1"}}],
        },
    }
    spec = as_allocated(body)["spec"]
    assert (spec["resources"], spec["initContainers"][0]["resources"]) == (both(cpu="4"), both(cpu="1"))


def test_satisfied_pod_stays_the_same_object() -> None:
    body = pod(both(cpu="4"), allocatedResources={"cpu": "4"})
    assert as_allocated(body) is body


def test_sums_in_the_status_add_no_pod_level_resources() -> None:
    # As a kubelet of 1.36.2 writes the status of every pod.
    body = pod(both(cpu="4"), allocatedResources={"cpu": "4"})
    body["status"] |= {"allocatedResources": {"cpu": "4"}, "resources": both(cpu="4")}
    assert as_allocated(body) is body
