"""A day of four real kubelets (1.36.2), replayed: every decision of theirs is predicted.

Pods that the managers admitted and another check of the kubelet rejected later (``OutOfcpu``) are
admitted here and then gone, as for the kubelet. Where the kubelet picked devices at random, its
pick is offered to the model as the plugin's preference: taking it shows that it was open to it.
"""

import gzip
import json
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from numazones import cpuset
from numazones.kubelet.admission import Admission, admit, remove
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.device_manager import Device
from numazones.kubelet.explanation import explain
from numazones.kubelet.node import Node
from numazones.pod import Pod
from numazones_exporter.sources.sysfs import SysfsReader

SAMPLES = Path(__file__).parents[2] / "data"

# All outcomes of the day per node; nothing else happened there. The three pods that stayed
# Unschedulable never reached a kubelet. OutOfcpu: one pod that the managers admit, and the
# node-resources check, which comes after them, rejects.
OUTCOMES = {
    "rig-a": {"admitted": 27, "TopologyAffinityError": 5, "UnexpectedAdmissionError": 1, "admitted again": 8},
    "rig-b": {"admitted": 32, "TopologyAffinityError": 8, "UnexpectedAdmissionError": 5, "OutOfcpu": 1},
    "rig-c": {"admitted": 28, "SMTAlignmentError": 7, "UnexpectedAdmissionError": 2},
    "rig-d": {
        "admitted": 52,
        "TopologyAffinityError": 9,
        "UnexpectedAdmissionError": 1,
        "admitted again": 13,
    },
}
LATER_CHECKS = {"OutOfcpu"}
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

    def __init__(self, node: Node, devices: dict[str, tuple[Device, ...]], preference: Preference) -> None:
        self.node = node
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
        admission = admit(self.node, pod)
        self.node = admission.node
        message = (outcome["message"] or "").removeprefix(REJECTED)
        if outcome["reason"] in LATER_CHECKS:
            assert admission.admitted, name
            self.outcomes[outcome["reason"]] += 1
            self.node = remove(self.node, pod.uid)
        elif (outcome["message"] or "").startswith(REJECTED):
            assert (admission.admitted, admission.reason, admission.message) == (
                False,
                outcome["reason"],
                message,
            ), name
            assert explain(admission).shortfall
            self.outcomes[admission.reason] += 1
        else:
            assert admission.admitted, f"{name}: {admission.message}"
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
    return Day(Node.fresh(machine, config, devices, preferred_allocation=preference), devices, preference)


def operations(lines: Iterable[str], node: str) -> Iterator[dict[str, Any]]:
    for line in lines:
        operation = json.loads(line)
        if operation["node"] == node:
            yield operation


def test_a_recorded_day_of_one_kubelet_is_predicted(tmp_path: Path) -> None:
    recorded = json.loads(gzip.decompress((SAMPLES / "conformance/recorded-day.json.gz").read_bytes()))
    folder = SAMPLES / "recordings/one-node" / recorded["node"]
    replayed = day(folder, recorded["plugins"], tmp_path, "v1.36.2")
    for operation in recorded["operations"]:
        replayed.play(operation)
    assert replayed.outcomes == OUTCOMES["rig-b"]


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_recorded_decision_is_predicted(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "recordings/four-nodes" / name
    version = json.loads((folder / "node.json").read_text())["status"]["nodeInfo"]["kubeletVersion"]
    plugins = json.loads((folder / "device_plugins.json").read_text())
    replayed = day(folder, plugins, tmp_path, version)
    with (folder.parent / "replay.jsonl").open() as lines:
        for operation in operations(lines, name):
            replayed.play(operation)
    assert replayed.outcomes == OUTCOMES[name]
