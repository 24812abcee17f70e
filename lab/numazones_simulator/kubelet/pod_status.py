"""The status that a kubelet writes to a pod: rejected, or running with containers.

Shapes and figures are those that kubelet 1.36 writes (compare the recordings): a rejected pod has phase
Failed, reason and message and no containers; of a running one, ordinary init containers have ended and
sidecars and app containers run. Simulated containers start at once and never end by themselves.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

from numazones.kubelet.rejection import STATUS_PREFIX

_CONDITIONS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")

Body = Mapping[str, Any]


def rejected(pod: Body, *, reason: str, message: str, qos_class: str, now: str) -> dict[str, Any]:
    """The status of a pod that the kubelet does not run.

    ``reason``: CamelCase, such as TopologyAffinityError; ``message``: without the prefix that all
    rejections have; ``now``: as the API writes it.
    """
    return {
        "observedGeneration": pod["metadata"].get("generation", 1),
        "phase": "Failed",
        "reason": reason,
        "message": STATUS_PREFIX + message,
        "startTime": now,
        "qosClass": qos_class,
    }


def preempted() -> dict[str, Any]:
    """Return the status change of a pod that makes room for a critical one."""
    message = "Preempted in order to admit critical pod"
    return {"phase": "Failed", "reason": "Preempting", "message": message}


def stopped() -> dict[str, Any]:
    """Return the status change of a pod that a kubelet rejects when it starts again; it gives no reason."""
    return {"phase": "Failed"}


def running(pod: Body, *, qos_class: str, host_ip: str, pod_ip: str, now: str) -> dict[str, Any]:
    """The status of a pod all of whose containers run."""
    spec, generation = pod["spec"], pod["metadata"].get("generation", 1)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "phase": "Running",
        "conditions": [
            {
                "type": name,
                "observedGeneration": generation,
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            }
            for name in _CONDITIONS
        ],
        "hostIP": host_ip,
        "hostIPs": [{"ip": host_ip}],
        "podIP": pod_ip,
        "podIPs": [{"ip": pod_ip}],
        "startTime": now,
        "containerStatuses": [_container(pod, container, now) for container in spec["containers"]],
        "qosClass": qos_class,
    }
    if spec.get("initContainers"):
        status["initContainerStatuses"] = [
            _container(pod, container, now, ended=container.get("restartPolicy") != "Always")
            for container in spec["initContainers"]
        ]
    return status


def not_created(
    pod: Body, *, errors: Mapping[str, str], qos_class: str, host_ip: str, pod_ip: str, now: str
) -> dict[str, Any]:
    """The status of a pod of which the runtime did not create some containers: they wait for another try.

    ``errors``: container → message of the runtime.
    """
    status = running(pod, qos_class=qos_class, host_ip=host_ip, pod_ip=pod_ip, now=now)
    blocked = False
    for part in ("initContainerStatuses", "containerStatuses"):
        items = []
        for item in status.get(part, ()):
            refused = item["name"] in errors
            if refused:
                items.append(_waiting_container(item, "CreateContainerError", errors[item["name"]]))
            else:
                items.append(_waiting_container(item, "PodInitializing") if blocked else item)
            blocked |= refused and part == "initContainerStatuses"
        status[part] = items
    conditions = [
        {**item, "status": "False"} if item["type"] in {"Ready", "ContainersReady"} else item
        for item in status["conditions"]
    ]
    return {**status, "phase": "Pending", "conditions": conditions}


def tried_again(pod: Body, before: Body, *, errors: Mapping[str, str], now: str) -> dict[str, Any]:
    """The status after another attempt at the containers of a pod that wait.

    What the kubelet had told before of others, and of the pod, stays.

    ``errors``: container → message of the runtime now; empty: all have been created.
    """
    about = {
        "qos_class": before["qosClass"],
        "host_ip": before["hostIP"],
        "pod_ip": before["podIP"],
        "now": now,
    }
    status = not_created(pod, errors=errors, **about) if errors else running(pod, **about)
    for part in ("initContainerStatuses", "containerStatuses"):
        told = {item["name"]: item for item in before.get(part, ()) if "waiting" not in item["state"]}
        if part in status:
            status[part] = [told.get(item["name"], item) for item in status[part]]
    return {**status, "startTime": before["startTime"]}


def _waiting_container(container: Body, reason: str, message: str = "") -> dict[str, Any]:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    known = {name: container[name] for name in container if name != "containerID"}
    return {**known, "state": state, "ready": False, "started": False}


def _container(pod: Body, container: Body, now: str, *, ended: bool = False) -> dict[str, Any]:
    seed = f"{pod['metadata'].get('uid')}/{container['name']}"
    container_id = f"simulated://{hashlib.sha256(seed.encode()).hexdigest()}"
    state: dict[str, Any] = {"running": {"startedAt": now}}
    if ended:
        state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": now,
                "finishedAt": now,
                "containerID": container_id,
            }
        }
    status: dict[str, Any] = {
        "name": container["name"],
        "state": state,
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": container.get("image", ""),
        "containerID": container_id,
        "started": not ended,
    }
    resources = container.get("resources") or {}
    if resources.get("requests"):
        status["allocatedResources"] = dict(resources["requests"])
    if resources:
        status["resources"] = dict(resources)
    return status
