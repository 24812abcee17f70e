import json
from pathlib import Path
from typing import Any

import pytest

from numazones_simulator.kubelet import pod_status

NOW = "2026-11-20T19:01:44Z"


def of_recording(shared: Path, name: str) -> dict[str, Any]:
    pods = json.loads((shared / "recordings/four-nodes/pods.json").read_text())["items"]
    found: dict[str, Any] = next(pod for pod in pods if pod["metadata"]["name"] == name)
    return found


def test_a_rejected_pod_looks_as_the_kubelet_leaves_it(shared: Path) -> None:
    pod = of_recording(shared, "p046-gdev")
    recorded = pod.pop("status")
    status = pod_status.rejected(
        pod,
        reason="TopologyAffinityError",
        message="Resources cannot be allocated with Topology locality",
        qos_class="Guaranteed",
        now=recorded["startTime"],
    )
    assert status == recorded


def test_a_running_pod_has_what_the_kubelet_writes(shared: Path) -> None:
    pod = of_recording(shared, "p039-init")
    recorded = pod.pop("status")
    status = pod_status.running(
        pod, qos_class="Guaranteed", host_ip="10.77.0.13", pod_ip="10.102.0.6", now=NOW
    )
    # What depends on the runtime and on passing time is not compared; pod-wide sums are left out.
    assert status.keys() == recorded.keys() - {"allocatedResources", "resources"}
    for key in ("phase", "hostIP", "hostIPs", "podIP", "podIPs", "startTime", "qosClass"):
        assert status[key] == recorded[key]
    assert [(item["type"], item["status"]) for item in status["conditions"]] == [
        (item["type"], item["status"]) for item in recorded["conditions"]
    ]
    for kind in ("initContainerStatuses", "containerStatuses"):
        for ours, theirs in zip(status[kind], recorded[kind], strict=True):
            assert ours.keys() == theirs.keys()
            assert ours["state"].keys() == theirs["state"].keys()
            for key in ("name", "ready", "started", "allocatedResources", "resources", "image"):
                assert ours[key] == theirs[key]


@pytest.mark.parametrize(("policy", "state"), [("Always", "running"), (None, "terminated")])
def test_sidecars_keep_running_and_ordinary_init_containers_end(policy: str | None, state: str) -> None:
    init = {"name": "i", "restartPolicy": policy}
    pod = {"metadata": {"uid": "u"}, "spec": {"initContainers": [init], "containers": [{"name": "c"}]}}
    status = pod_status.running(pod, qos_class="BestEffort", host_ip="10.0.0.1", pod_ip="10.1.0.1", now=NOW)
    assert list(status["initContainerStatuses"][0]["state"]) == [state]


POD = {
    "metadata": {"uid": "u"},
    "spec": {
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}, {"name": "j"}],
        "containers": [{"name": "c"}, {"name": "d"}],
    },
}


def refused(*names: str) -> dict[str, Any]:
    """The status while these containers are not created."""
    return pod_status.not_created(
        POD,
        errors=dict.fromkeys(names, "no room"),
        qos_class="BestEffort",
        host_ip="10.0.0.1",
        pod_ip="10.1.0.1",
        now=NOW,
    )


def states(status: dict[str, Any]) -> dict[str, str]:
    """Container → running, terminated, or the reason why it waits."""
    items = (*status["initContainerStatuses"], *status["containerStatuses"])
    return {
        item["name"]: item["state"].get("waiting", {}).get("reason") or min(item["state"]) for item in items
    }


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("i", ["CreateContainerError", *["PodInitializing"] * 4]),
        ("s", ["terminated", "CreateContainerError", *["PodInitializing"] * 3]),
        ("c", ["terminated", "running", "terminated", "CreateContainerError", "running"]),
        ("cd", ["terminated", "running", "terminated", *["CreateContainerError"] * 2]),
    ],
)
def test_containers_wait_for_an_uncreated_init_container(names: str, expected: list[str]) -> None:
    status = refused(*names)
    assert status["phase"] == "Pending"
    assert list(states(status).values()) == expected
    for item in (*status["initContainerStatuses"], *status["containerStatuses"]):
        assert ("containerID" in item) == ("waiting" not in item["state"])


def test_another_attempt_changes_what_is_told_of_waiting_containers_alone() -> None:
    before, later = refused("c", "d"), "2026-11-20T19:02:00Z"
    partly = pod_status.tried_again(POD, before, errors={"d": "no room yet"}, now=later)
    assert states(partly) == {**states(before), "c": "running"}
    assert partly["phase"] == "Pending"
    assert partly["containerStatuses"][0]["state"]["running"]["startedAt"] == later
    assert partly["containerStatuses"][1]["state"]["waiting"]["message"] == "no room yet"
    whole = pod_status.tried_again(POD, partly, errors={}, now="2026-11-20T19:03:00Z")
    assert states(whole) == {**states(before), "c": "running", "d": "running"}
    assert (whole["phase"], whole["startTime"], whole["podIP"]) == ("Running", NOW, "10.1.0.1")
    assert whole["containerStatuses"][0] == partly["containerStatuses"][0]
    assert whole["initContainerStatuses"] == before["initContainerStatuses"]
