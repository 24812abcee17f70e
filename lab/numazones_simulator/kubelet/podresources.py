"""The podresources API, v1, of a simulated kubelet: who holds what, over a unix socket.

What real kubelets answer (compare the recordings): active pods only; ordinary init containers never appear,
sidecars come before the app containers; a container of the shared pool has no CPUs; a device of two NUMA
nodes comes once for each; GetAllocatableResources does not shrink with use and leaves out unhealthy devices.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from grpclib import GRPCError, Status
from grpclib.const import Cardinality, Handler
from grpclib.server import Stream

from numazones import cpuset
from numazones.kubelet.demand import ContainerKind
from numazones.kubelet.device_manager import DeviceResource
from numazones.kubelet.machine_state import Block
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones_node import podresources_pb2 as pb
from numazones_simulator.kubelet.unix_server import UnixServer

_SERVICE = "/v1.PodResourcesLister"


def listed(node: Node, pods: Iterable[Pod]) -> pb.ListPodResourcesResponse:
    """The answer to List: what the active pods of a node hold."""
    return pb.ListPodResourcesResponse(pod_resources=[_pod(node, pod) for pod in pods])


def allocatable(node: Node) -> pb.AllocatableResourcesResponse:
    """The answer to GetAllocatableResources: what containers could be given on the empty node."""
    memory = node.kubelet.memory
    return pb.AllocatableResourcesResponse(
        cpu_ids=cpuset.ids(node.kubelet.cpus.allocatable() if node.kubelet.cpus.static else 0),
        memory=[
            pb.ContainerMemory(memory_type=kind, size=amount, topology=_topology([numa]))
            for kind, amounts in memory.allocatable.items()
            for numa, amount in zip(memory.numas, amounts, strict=True)
            if amount > 0
        ],
        devices=[
            device
            for resource in node.kubelet.devices.resources.values()
            if resource.registered
            for device in _devices(resource, resource.healthy)
        ],
    )


def _pod(node: Node, pod: Pod) -> pb.PodResources:
    containers = [
        _container(node, pod.uid, container.name)
        for container in pod.containers  # init containers first, sidecars among them
        if container.kind is not ContainerKind.INIT
    ]
    return pb.PodResources(
        name=pod.name,
        namespace=pod.namespace,
        containers=containers,
        cpu_ids=cpuset.ids(node.cpus.pods.get(pod.uid, 0)),
        memory=_memory(node.memory.pods.get(pod.uid, ())),
    )


def _memory(blocks: Iterable[Block]) -> list[pb.ContainerMemory]:
    return [
        pb.ContainerMemory(
            memory_type=block.type, size=block.size, topology=_topology(cpuset.ids(block.affinity))
        )
        for block in blocks
    ]


def _container(node: Node, uid: str, name: str) -> pb.ContainerResources:
    held = node.devices.assignments.get(uid, {}).get(name, {})
    return pb.ContainerResources(
        name=name,
        cpu_ids=cpuset.ids(node.cpus.assignments.get(uid, {}).get(name, 0)),
        memory=_memory(node.memory.assignments.get(uid, {}).get(name, ())),
        devices=[
            device
            for resource, mask in held.items()
            for device in _devices(node.kubelet.devices.resources[resource], mask)
        ],
    )


def _devices(resource: DeviceResource, mask: int) -> Iterator[pb.ContainerDevices]:
    for number in cpuset.ids(mask):
        device = resource.devices[number]
        for numa in device.numa or (None,):
            yield pb.ContainerDevices(
                resource_name=resource.name,
                device_ids=[device.id],
                topology=None if numa is None else _topology([numa]),
            )


def _topology(numas: Iterable[int]) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa) for numa in numas])


class PodResourcesServer:
    """Serves the API on a unix socket while its context is open.

    The directory of the socket is made, an old socket is replaced. ``holdings`` gives the node and its
    active pods at the time of a call.
    """

    def __init__(self, path: Path, holdings: Callable[[], tuple[Node, Iterable[Pod]]]) -> None:
        self._holdings = holdings
        self._server = UnixServer(path, self)

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._server.__aexit__(kind, error, trace)

    def __mapping__(self) -> dict[str, Handler]:
        """The service's methods, as grpclib asks for them."""
        calls: tuple[tuple[str, Any, Any, Any], ...] = (
            ("List", self._list, pb.ListPodResourcesRequest, pb.ListPodResourcesResponse),
            (
                "GetAllocatableResources",
                self._get_allocatable,
                pb.AllocatableResourcesRequest,
                pb.AllocatableResourcesResponse,
            ),
            ("Get", self._get, pb.GetPodResourcesRequest, pb.GetPodResourcesResponse),
        )
        return {
            f"{_SERVICE}/{name}": Handler(call, Cardinality.UNARY_UNARY, request, response)
            for name, call, request, response in calls
        }

    async def _list(self, stream: Stream[pb.ListPodResourcesRequest, pb.ListPodResourcesResponse]) -> None:
        await stream.recv_message()
        await stream.send_message(listed(*self._holdings()))

    async def _get_allocatable(
        self, stream: Stream[pb.AllocatableResourcesRequest, pb.AllocatableResourcesResponse]
    ) -> None:
        await stream.recv_message()
        await stream.send_message(allocatable(self._holdings()[0]))

    async def _get(self, stream: Stream[pb.GetPodResourcesRequest, pb.GetPodResourcesResponse]) -> None:
        request = await stream.recv_message()
        node, pods = self._holdings()
        for pod in pods:
            if request is not None and (pod.namespace, pod.name) == (request.pod_namespace, request.pod_name):
                await stream.send_message(pb.GetPodResourcesResponse(pod_resources=_pod(node, pod)))
                return
        name = "" if request is None else f"{request.pod_name} in namespace {request.pod_namespace}"
        raise GRPCError(Status.UNKNOWN, f"pod {name} not found")
