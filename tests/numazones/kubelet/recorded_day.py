"""A recorded day of a real kubelet, replayed: what it decided is compared with what the model decides."""

import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from numazones import cpuset
from numazones.cluster.cluster import ClusterNode
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.constraints import Constraints
from numazones.kubelet.device_manager import Device
from numazones.kubelet.explanation import explain
from numazones.kubelet.node import Node
from numazones.kubelet.node_admission import admit_to_node, counted_requests
from numazones.kubelet.node_info import NodeInfo, PodInfo
from numazones.kubelet.pod import Pod
from numazones_node.sysfs import SysfsReader

REJECTED = "Pod was rejected: "


class Preference:
    """Stands for the plugins: prefers the devices that the kubelet took."""

    def __init__(self) -> None:
        self.taken: set[str] = set()

    def __call__(
        self, _resource: str, available: Sequence[str], _must_include: Sequence[str], _size: int
    ) -> Iterable[str]:
        return [device for device in available if device in self.taken]


class Day:
    """One node's day: its state, the pods that are on it, and what was compared."""

    def __init__(
        self,
        node: Node,
        devices: dict[str, tuple[Device, ...]],
        preference: Preference,
        *,
        around: ClusterNode,
    ) -> None:
        self.node = node
        self.around = NodeInfo(
            node,
            allocatable=around.allocatable,
            pod_slots=around.pod_slots,
            name=around.name,
            labels=around.labels,
            taints=around.taints,
        )
        self.devices = devices
        self.preference = preference
        self.pods: dict[str, Pod] = {}
        self.outcomes: Counter[str] = Counter()

    def play(self, operation: Mapping[str, Any]) -> None:
        match operation["op"]:
            case "create":
                self.create(operation)
            case "delete":
                self.node = remove(self.node, operation["uid"])
                self.pods.pop(operation["uid"], None)
            case "device-health":
                self.change_health(operation)
            case "kubelet-restart":
                self.restart()

    def create(self, operation: Mapping[str, Any]) -> None:
        name = operation["pod"]["metadata"]["name"]
        outcome, observed = operation["outcome"], operation["observed"]
        manifest = {**operation["pod"], "metadata": {**operation["pod"]["metadata"], "uid": operation["uid"]}}
        pod = Pod.from_manifest(manifest)
        assert pod.qos == outcome["qosClass"], name
        self.preference.taken = set(observed_devices(observed))
        constraints = Constraints.from_api(operation["pod"]["spec"])
        others = {
            uid: PodInfo(other, requests=counted_requests(other, self.node.config))
            for uid, other in self.pods.items()
        }
        said = admit_to_node(replace(self.around, state=self.node, pods=others), PodInfo(pod, constraints))
        self.node = said.state
        message = (outcome["message"] or "").removeprefix(REJECTED)
        admission = said.managers
        assert admission is not None
        if (outcome["message"] or "").startswith(REJECTED):
            assert (said.admitted, said.reason, said.message) == (False, outcome["reason"], message), name
            assert said.sentence or explain(admission).shortfall
            self.outcomes[said.reason] += 1
        else:
            assert said.admitted, f"{name}: {said.message}"
            self.outcomes["admitted"] += 1
            self.compare(name, admission, outcome, observed)
            if outcome["phase"] in {"Succeeded", "Failed"}:
                self.node = remove(self.node, pod.uid)
            else:
                self.pods[pod.uid] = pod

    def compare(
        self, name: str, admission: Admission, outcome: Mapping[str, Any], observed: Mapping[str, Any]
    ) -> None:
        """CPUs and memory as in the kubelet's state files, devices as in podresources."""
        uid = admission.pod.uid
        if outcome["phase"] in {"Succeeded", "Failed"}:
            compare_leftovers(name, admission, observed)
            return
        cpus = {
            container: cpuset.format(members)
            for container, members in self.node.cpus.assignments.get(uid, {}).items()
        }
        assert cpus == (observed["cpu_manager_state"] or {}), name
        memory = {
            container: sorted((block.type, list(cpuset.ids(block.affinity)), block.size) for block in blocks)
            for container, blocks in self.node.memory.assignments.get(uid, {}).items()
        }
        recorded = {
            container: sorted((block["type"], block["numaAffinity"], block["size"]) for block in blocks)
            for container, blocks in (observed["memory_manager_state"] or {}).items()
        }
        assert memory == recorded, name
        assert cpuset.format(self.node.cpus.default) == observed["default_cpuset"], name
        devices = {
            device
            for given in admission.containers.values()
            for ids in given.devices.values()
            for device in ids
        }
        if observed["podresources_list"]:
            inits = {container.name for container in admission.pod.containers} - set(
                observed["podresources_list"]
            )
            assert devices >= self.preference.taken, name
            assert devices == self.preference.taken or inits, name

    def change_health(self, operation: Mapping[str, Any]) -> None:
        self.devices[operation["resource"]] = tuple(
            Device(device.id, device.numa, operation["health"] == "Healthy")
            if device.id == operation["device"]
            else device
            for device in self.devices[operation["resource"]]
        )
        self.node = self.node.with_devices(self.devices)

    def restart(self) -> None:
        """The kubelet admits its pods again from its state files, and nothing changes."""
        for pod in self.pods.values():
            again = admit(self.node, pod)
            assert again.admitted, (pod.name, again.message)
            assert again.node.state_key == self.node.state_key, pod.name
            self.outcomes["admitted again"] += 1


def compare_leftovers(name: str, admission: Admission, observed: Mapping[str, Any]) -> None:
    """Pods that have ended stay in the state files until the kubelet looks after them again."""
    for container, cpus in (observed["cpu_manager_state"] or {}).items():
        assert cpuset.format(admission.containers[container].cpus) == cpus, name
    for container, blocks in (observed["memory_manager_state"] or {}).items():
        given = [(block.type, block.size) for block in admission.containers[container].memory]
        assert given == [(block["type"], block["size"]) for block in blocks], name


def observed_devices(observed: Mapping[str, Any]) -> Iterator[str]:
    listed = observed.get("podresources_list") or {}
    for container in listed.values():
        for item in container.get("devices") or ():
            yield from [item["id"]] if "id" in item else item["ids"]


def day(folder: Path, plugins: Mapping[str, Any], scratch: Path, version: str) -> Day:
    with tarfile.open(folder / "sys.tar.gz") as tree:
        tree.extractall(scratch, filter="data")
    machine = SysfsReader(scratch / "sys", scratch / "proc").read().value.machine
    config = KubeletConfiguration.from_api(
        yaml.safe_load((folder / "kubelet-config.yaml").read_text()), version=version
    )
    devices = {
        plugin["resource"]: tuple(Device(item["id"], tuple(item["numa"])) for item in plugin["devices"])
        for plugin in plugins.values()
    }
    preference = Preference()
    around = ClusterNode.from_api(json.loads((folder / "node.json").read_text()))
    node = Node.fresh(machine, config, devices, preferred_allocation=preference)
    return Day(node, devices, preference, around=around)


def operations(lines: Iterable[str], node: str) -> Iterator[dict[str, Any]]:
    for line in lines:
        operation = json.loads(line)
        if operation["node"] == node:
            yield operation
