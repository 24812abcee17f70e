"""A recorded history as objects: the cluster as it was at the end.

What pods hold is read from the kubelets' state files, as the kubelets would after a restart; what files keep
of ended pods is left out. NUMAZones say it, as an exporter would have written them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.file_content import read_file, recorded_json
from kubectl_numazones.reading.recorded_files import PODS
from kubectl_numazones.reading.recording import RecordedNode, recorded_lines, usable
from numazones.api.zones_from_node import zones_from_node
from numazones.apimachinery.api_object import MALFORMED
from numazones.apimachinery.documents import OBJECT
from numazones.cluster.cluster import ClusterPod
from numazones.cluster.dump import Object
from numazones.errors import NumazonesError
from numazones.kubelet.admission import remove
from numazones.kubelet.checkpoints import (
    CPU_MANAGER_STATE,
    DEVICE_CHECKPOINT,
    MEMORY_MANAGER_STATE,
    parse_cpu_manager_state,
    parse_device_manager_state,
    parse_memory_manager_state,
)
from numazones.kubelet.device_manager import Device
from numazones.kubelet.node import Node
from numazones.kubelet.restart import node_from_checkpoints


def objects_at_end(directory: Path) -> Iterator[Object]:
    """Yield a recorded history's pods, nodes and their zones.

    Raises:
        BadDump: a file of it is missing or damaged.
    """
    lines = list(recorded_lines(directory))
    bodies, pods = _pods(directory / PODS)
    yield from bodies
    for name in sorted({line["node"] for line in lines if line.get("node")}):
        with usable(directory / name):
            found = RecordedNode.read(directory / name)
            held = {
                pod.kubelet_uid: (pod.namespace, pod.name) for pod in pods if pod.active and pod.node == name
            }
            health = {
                (line["resource"], line["device"]): line["health"] == "Healthy"
                for line in lines
                if line["op"] == "device-health" and line["node"] == name
            }
            state = _state(directory / name, found, health)
            for uid in state.pods - held.keys():
                state = remove(state, uid)
            zones = zones_from_node(state, node_name=name, pods=held, version=found.version)
            yield {"apiVersion": "v1", "kind": "Node", **found.body}
            yield from (zone.to_api() for zone in zones)


def _pods(path: Path) -> tuple[list[Object], list[ClusterPod]]:
    try:
        items = recorded_json(path)["items"]
        bodies: list[Object] = [{"apiVersion": "v1", "kind": "Pod", **item} for item in items]
        return bodies, list(map(ClusterPod.from_api, bodies))
    except (OSError, RecursionError, *MALFORMED, NumazonesError) as error:
        raise BadDump(f"{path}: the pods at the end of the recording cannot be read: {error!r}") from error


def _file(path: Path) -> bytes:
    return read_file(path, OBJECT.size, regular=True)


def _state(directory: Path, found: RecordedNode, health: Mapping[tuple[str, str], bool]) -> Node:
    devices: dict[str, list[Device]] = {
        resource: [replace(device, healthy=health.get((resource, device.id), True)) for device in announced]
        for resource, announced in found.devices.items()
    }
    return node_from_checkpoints(
        found.machine,
        found.config,
        devices,
        cpus=parse_cpu_manager_state(_file(directory / CPU_MANAGER_STATE)),
        memory=parse_memory_manager_state(_file(directory / MEMORY_MANAGER_STATE)),
        held=parse_device_manager_state(_file(directory / DEVICE_CHECKPOINT)),
    )
