from pathlib import Path

import pytest
from grpclib import GRPCError
from grpclib.client import Channel

from numazones import cpuset
from numazones.kubelet import machines
from numazones.kubelet.device_manager import Device
from numazones.kubelet.machines import MachineShape
from numazones_exporter.sources.podresources import SocketReader
from numazones_node import podresources_pb2 as pb
from numazones_node.podresources_grpc import PodResourcesListerStub
from numazones_simulator.kubelet.kubelet import SimulatedKubelet
from numazones_simulator.kubelet.podresources import PodResourcesServer
from numazones_simulator.node_spec import NodeSpec, configuration

MACHINE = machines.build(MachineShape(cores_per_numa=4, memory_per_numa=8 << 30))
NIC = "vendor.example/nic"
GIB = 1 << 30


@pytest.fixture
def kubelet() -> SimulatedKubelet:
    config = configuration(MACHINE, topology_manager_policy="best-effort", reserved_cpus="0,8")
    devices = {NIC: (Device("a", (0, 1)), Device("b", (1,), healthy=False), Device("c"))}
    simulated = SimulatedKubelet(NodeSpec("n1", MACHINE, config, devices))
    amounts = {"cpu": "2", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    with_nic = {"requests": {**amounts, NIC: "1"}, "limits": {**amounts, NIC: "1"}}
    spec = {
        "initContainers": [
            {"name": "init", "resources": resources},
            {"name": "sidecar", "restartPolicy": "Always", "resources": resources},
        ],
        "containers": [{"name": "app", "resources": with_nic}],
    }
    verdict = simulated.admit({"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": spec})
    assert verdict.rejection is None
    return simulated


def server(kubelet: SimulatedKubelet, path: Path) -> PodResourcesServer:
    return PodResourcesServer(path, lambda: (kubelet.node, kubelet.pods))


async def test_the_exporter_reads_what_the_pods_hold(kubelet: SimulatedKubelet, tmp_path: Path) -> None:
    socket = tmp_path / "pod-resources" / "kubelet.sock"
    reader = SocketReader(socket)
    async with server(kubelet, socket):
        answer = await reader.read()
        await reader.close()
    (pod,) = answer.pods
    assert (pod.namespace, pod.name) == ("x", "p")
    assert [container.name for container in pod.containers] == ["sidecar", "app"]
    sidecar, app = pod.containers
    assert sidecar.cpus == kubelet.node.cpus.assignments["u"]["sidecar"] != 0
    assert app.cpus == kubelet.node.cpus.assignments["u"]["app"]
    assert [(block.type, block.affinity, block.size) for block in app.memory] == [("memory", 1, GIB)]
    assert [(device.resource, device.id, device.numa) for device in app.devices] == [(NIC, "a", 3)]


async def test_allocatable_does_not_shrink_and_lacks_faulty_devices(
    kubelet: SimulatedKubelet, tmp_path: Path
) -> None:
    socket = tmp_path / "kubelet.sock"
    reader = SocketReader(socket)
    async with server(kubelet, socket):
        answer = await reader.read()
        await reader.close()
    assert cpuset.format(answer.allocatable_cpus) == "1-7,9-15"
    assert sorted((device.id, device.numa) for device in answer.allocatable_devices) == [("a", 3), ("c", 0)]
    assert sorted((block.type, block.affinity) for block in answer.allocatable_memory) == [
        ("memory", 1),
        ("memory", 2),
    ]


async def test_single_pods_can_be_asked_for(kubelet: SimulatedKubelet, tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    async with server(kubelet, socket), Channel(path=str(socket)) as channel:
        stub = PodResourcesListerStub(channel)
        found = await stub.Get(pb.GetPodResourcesRequest(pod_name="p", pod_namespace="x"))
        assert [container.name for container in found.pod_resources.containers] == ["sidecar", "app"]
        with pytest.raises(GRPCError, match="pod q in namespace x not found"):
            await stub.Get(pb.GetPodResourcesRequest(pod_name="q", pod_namespace="x"))


async def test_removed_pods_are_not_listed(kubelet: SimulatedKubelet, tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    reader = SocketReader(socket)
    kubelet.remove("u")
    async with server(kubelet, socket):
        assert (await reader.read()).pods == ()
        await reader.close()
    assert not socket.exists()
