"""The recorded operations of four real kubelets, replayed on simulated ones."""

import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from numazones.kubelet.device_manager import Device
from numazones_node.sysfs import SysfsReader
from numazones_simulator.kubelet import podresources
from numazones_simulator.kubelet.kubelet import SimulatedKubelet, Verdict
from numazones_simulator.node_spec import NodeSpec, node_object

NODES = ("rig-a", "rig-b", "rig-c", "rig-d")


@pytest.fixture(scope="session")
def recordings(shared: Path) -> Path:
    return shared / "recordings" / "four-nodes"


def spec_of(recordings: Path, name: str, scratch: Path) -> NodeSpec:
    """The recorded node as a simulated one, all devices healthy as at the start."""
    directory = recordings / name
    with tarfile.open(directory / "sys.tar.gz") as archive:
        archive.extractall(scratch, filter="data")
    plugins = json.loads((directory / "device_plugins.json").read_text()).values()
    return NodeSpec(
        name=name,
        machine=SysfsReader(scratch / "sys", scratch / "proc").read().value.machine,
        configuration=json.loads((directory / "configz.json").read_text())["kubeletconfig"],
        devices={
            plugin["resource"]: tuple(Device(item["id"], tuple(item["numa"])) for item in plugin["devices"])
            for plugin in plugins
        },
        labels=json.loads((directory / "node.json").read_text())["metadata"]["labels"],
    )


@pytest.fixture(scope="session", params=NODES)
def spec(request: pytest.FixtureRequest, recordings: Path) -> NodeSpec:
    with TemporaryDirectory() as scratch:
        return spec_of(recordings, request.param, Path(scratch))


def operations(recordings: Path, node: str) -> Iterator[dict[str, Any]]:
    with (recordings / "replay.jsonl").open() as lines:
        for line in lines:
            operation = json.loads(line)
            if operation["node"] == node:
                yield operation


def as_served(operation: dict[str, Any]) -> dict[str, Any]:
    """The pod as an API server serves it: uid, node, and requests that default to limits."""
    pod: dict[str, Any] = json.loads(json.dumps(operation["pod"]))
    pod["metadata"]["uid"] = operation["uid"]
    pod["spec"]["nodeName"] = operation["node"]
    parts = [pod["spec"], *pod["spec"].get("initContainers", ()), *pod["spec"]["containers"]]
    for resources in filter(None, (part.get("resources") for part in parts)):
        resources["requests"] = {**resources.get("limits", {}), **resources.get("requests", {})}
    return pod


def outcome(verdict: Verdict) -> tuple[str | None, str | None, str]:
    if verdict.rejection is None:
        return None, None, verdict.qos_class
    return verdict.rejection.reason, f"Pod was rejected: {verdict.rejection.message}", verdict.qos_class


def recorded_outcome(expected: dict[str, Any]) -> tuple[str | None, str | None, str]:
    if expected["phase"] == "Pending":  # its image could not be pulled; it was admitted all the same
        return None, None, expected["qosClass"]
    return expected["reason"], expected["message"], expected["qosClass"]


def held(kubelet: SimulatedKubelet, uid: str) -> dict[str, Any]:
    """Return what podresources would list for the pod, in the recording's format; devices by NUMA node."""
    pod = next(pod for pod in kubelet.pods if pod.uid == uid)
    containers = podresources.listed(kubelet.node, [pod]).pod_resources[0].containers
    found: dict[str, Any] = {}
    for container in containers:
        entry: dict[str, Any] = {}
        if container.cpu_ids:
            entry["cpu_ids"] = sorted(container.cpu_ids)
        if container.memory:
            entry["memory"] = sorted(
                (block.memory_type, block.size, sorted(node.ID for node in block.topology.nodes))
                for block in container.memory
            )
        if container.devices:
            entry["devices"] = sorted(
                (device.resource_name, [node.ID for node in device.topology.nodes])
                for device in container.devices
            )
        found[container.name] = entry
    return found


def recorded_holding(operation: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, container in operation["observed"]["podresources_list"].items():
        entry: dict[str, Any] = {}
        if container.get("cpu_ids"):
            entry["cpu_ids"] = sorted(container["cpu_ids"])
        if container.get("memory"):
            entry["memory"] = sorted(
                (block["type"], block["size"], sorted(block["numa"])) for block in container["memory"]
            )
        if container.get("devices"):
            entry["devices"] = sorted(
                (device["resource"], device["numa"] or [])
                for device in container["devices"]
                for _ in device["ids"]
            )
        found[name] = entry
    return found


def devices(holding: dict[str, Any]) -> list[Any]:
    return [container.get("devices") for container in holding.values()]


def test_simulated_kubelets_decide_as_the_recorded_ones_did(recordings: Path, spec: NodeSpec) -> None:
    kubelet = SimulatedKubelet(spec)
    created = compared = 0
    parted = False
    for operation in operations(recordings, spec.name):
        match operation["op"]:
            case "create":
                expected = operation["outcome"]
                verdict = kubelet.admit(as_served(operation))
                assert outcome(verdict) == recorded_outcome(expected), operation["seq"]
                if verdict.rejection is None and operation["observed"].get("podresources_list"):
                    ours, theirs = held(kubelet, operation["uid"]), recorded_holding(operation)
                    # Kubelets draw devices at random; from the first that lies elsewhere, histories part.
                    parted = parted or devices(ours) != devices(theirs)
                    assert parted or ours == theirs, operation["seq"]
                    compared += not parted
                if expected["phase"] in {"Failed", "Succeeded"}:
                    kubelet.remove(operation["uid"])
                created += 1
            case "delete":
                kubelet.remove(operation["uid"])
            case "device-health":
                healthy = operation["health"] == "Healthy"
                kubelet.set_device_health(operation["resource"], operation["device"], healthy=healthy)
    assert created > 30
    assert compared > 10


def test_the_registered_node_offers_what_the_recorded_one_did(recordings: Path, spec: NodeSpec) -> None:
    recorded = json.loads((recordings / spec.name / "node.json").read_text())["status"]
    status = node_object(spec, now="2026-11-20T19:00:43Z")["status"]
    for kind in ("capacity", "allocatable"):
        # Local storage is not simulated; the recorded machines have a little memory outside of their zones.
        left_out = {"ephemeral-storage", "memory"}
        theirs = {key: text for key, text in recorded[kind].items() if key not in left_out}
        ours = {key: text for key, text in status[kind].items() if key != "memory"}
        if kind == "allocatable" and spec.name == "rig-c":
            theirs["vendor.example/nic"] = "8"  # one was made unhealthy later on
        assert ours == theirs
