"""podresources over a real socket and from recordings; late, hanging, rejecting and garbled kubelets."""

import asyncio
import socket as sockets
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc  # type: ignore[import-untyped]
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.server import Server

from numazones.api.snapshot import KnownDevice
from numazones.kubelet.machine import NOWHERE
from numazones.kubelet.machine_state import Block
from numazones_exporter.observation import ContainerResources, PodResourcesAnswer
from numazones_exporter.sources.podresources import SocketReader, parse_answers, reader_for
from numazones_node import podresources_pb2 as pb
from numazones_node.podresources_grpc import PodResourcesListerBase
from numazones_node.problems import SourceError


class Kubelet(PodResourcesListerBase):
    """Answers what it is told to."""

    def __init__(self) -> None:
        self.pods = pb.ListPodResourcesResponse()
        self.offer = pb.AllocatableResourcesResponse()
        self.rejects: GRPCError | None = None
        self.hangs = False
        self.calls: list[str] = []

    async def List(self, stream: Any) -> None:  # noqa: N802 - the name on the wire
        self.calls.append("List")
        await stream.recv_message()
        if self.hangs:
            await asyncio.Event().wait()
        if self.rejects is not None:
            raise self.rejects
        await stream.send_message(self.pods)

    async def GetAllocatableResources(self, stream: Any) -> None:  # noqa: N802
        self.calls.append("GetAllocatableResources")
        await stream.recv_message()
        await stream.send_message(self.offer)

    async def Get(self, stream: Any) -> None:  # noqa: N802
        raise NotImplementedError


@asynccontextmanager
async def listening(kubelet: Kubelet, path: Path) -> AsyncIterator[None]:
    server = Server([kubelet])
    await server.start(path=str(path))
    try:
        yield
    finally:
        server.close()
        remove(path)


def remove(path: Path) -> None:
    path.unlink(missing_ok=True)


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    return tmp_path / "kubelet.sock"


@pytest.fixture
async def reader(socket: Path) -> AsyncIterator[SocketReader]:
    found = SocketReader(socket)
    yield found
    await found.close()


def topology(*numas: int) -> pb.TopologyInfo:
    return pb.TopologyInfo(nodes=[pb.NUMANode(ID=numa) for numa in numas])


def devices(resource: str, device: str, *numas: int) -> pb.ContainerDevices:
    place = topology(*numas) if numas else None
    return pb.ContainerDevices(resource_name=resource, device_ids=[device], topology=place)


async def test_both_calls_are_made_every_time_so_late_plugins_appear(
    socket: Path, reader: SocketReader
) -> None:
    kubelet = Kubelet()
    async with listening(kubelet, socket):
        assert (await reader.read()).allocatable_devices == ()
        kubelet.offer.devices.append(devices("vendor.example/nic", "n0", 1))
        assert (await reader.read()).allocatable_devices == (KnownDevice("vendor.example/nic", "n0", 0b10),)
    assert kubelet.calls == ["List", "GetAllocatableResources"] * 2


async def test_allocatable_devices_are_read_without_listing_pods(socket: Path, reader: SocketReader) -> None:
    kubelet = Kubelet()
    with pytest.raises(SourceError, match="does not exist"):
        await reader.allocatable_devices()
    async with listening(kubelet, socket):
        kubelet.offer.devices.append(devices("vendor.example/nic", "n0", 1))
        assert await reader.allocatable_devices() == (KnownDevice("vendor.example/nic", "n0", 0b10),)
    assert kubelet.calls == ["GetAllocatableResources"]
    with pytest.raises(SourceError):
        await reader.allocatable_devices()


async def test_a_kubelet_that_was_restarted_is_reached_again(socket: Path, reader: SocketReader) -> None:
    async with listening(Kubelet(), socket):
        await reader.read()
    with pytest.raises(SourceError):
        await reader.read()
    async with listening(Kubelet(), socket):
        assert await reader.read() == PodResourcesAnswer((), 0, (), ())


async def test_an_absent_socket_is_named_with_the_usual_causes(socket: Path, reader: SocketReader) -> None:
    with pytest.raises(SourceError) as caught:
        await reader.read()
    assert caught.value.reason == "SocketMissing"
    assert str(caught.value) == (
        f"{socket} does not exist: is a kubelet running here, and is its directory "
        "pod-resources mounted (the directory, not the socket)?"
    )


async def test_a_socket_that_nobody_listens_on_is_named(socket: Path, reader: SocketReader) -> None:
    leave_behind(socket)
    with pytest.raises(SourceError, match=r"kubelet.sock: .*; is the kubelet running\?") as caught:
        await reader.read()
    assert caught.value.reason == "CannotConnect"


def leave_behind(path: Path) -> None:
    """Leave a socket that rejects connections, as a killed kubelet does."""
    with closing(sockets.socket(sockets.AF_UNIX)) as listener:
        listener.bind(str(path))


async def test_a_kubelet_that_rejects_is_quoted(socket: Path, reader: SocketReader) -> None:
    kubelet = Kubelet()
    kubelet.rejects = GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit")
    async with listening(kubelet, socket):
        with pytest.raises(SourceError) as caught:
            await reader.read()
    assert caught.value.reason == "KubeletRejected"
    assert str(caught.value) == (f"{socket}: the kubelet returned RESOURCE_EXHAUSTED: rejected by rate limit")


async def test_reading_works_again_after_a_hanging_kubelet(socket: Path, reader: SocketReader) -> None:
    kubelet = Kubelet()
    kubelet.hangs = True
    async with listening(kubelet, socket):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await reader.read()
        kubelet.hangs = False
        assert await reader.read() == PodResourcesAnswer((), 0, (), ())


@asynccontextmanager
async def babbling(path: Path, babble: bytes) -> AsyncIterator[None]:
    async def answer(_incoming: asyncio.StreamReader, outgoing: asyncio.StreamWriter) -> None:
        outgoing.write(babble)
        outgoing.close()

    server = await asyncio.start_unix_server(answer, str(path))
    async with server:
        yield


@pytest.mark.parametrize("babble", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8])
async def test_something_that_is_no_kubelet_is_named(
    socket: Path, reader: SocketReader, babble: bytes
) -> None:
    async with babbling(socket, babble):
        with pytest.raises(SourceError, match=str(socket)) as caught:
            async with asyncio.timeout(120):
                await reader.read()
    assert caught.value.reason in ("ConnectionLost", "CannotConnect")


async def test_a_kubelet_that_hangs_up_at_once_is_named(socket: Path, reader: SocketReader) -> None:
    """From another thread, so that the connection is closed before anything could be sent."""

    def hang_up(listener: sockets.socket) -> None:
        with suppress(OSError):
            while True:
                listener.accept()[0].close()

    with closing(sockets.socket(sockets.AF_UNIX)) as listener:
        listener.bind(str(socket))
        listener.listen()
        threading.Thread(target=hang_up, args=(listener,), daemon=True).start()
        for _ in range(20):
            with pytest.raises(SourceError, match=f"{socket}: .*; the next cycle reconnects"):
                await reader.read()
        listener.shutdown(sockets.SHUT_RDWR)


async def test_answers_of_several_mebibytes_are_read(socket: Path, reader: SocketReader) -> None:
    kubelet = Kubelet()
    kubelet.offer.devices.extend(devices("vendor.example/nic", f"{n:01000}") for n in range(6000))
    async with listening(kubelet, socket):
        assert len((await reader.read()).allocatable_devices) == 6000


async def test_answers_beyond_the_limit_are_rejected(
    socket: Path, reader: SocketReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numazones_exporter.sources.podresources.MAX_MESSAGE_BYTES", 1000)
    kubelet = Kubelet()
    kubelet.offer.devices.append(devices("vendor.example/nic", "n" * 1000))
    async with listening(kubelet, socket):
        with pytest.raises(
            SourceError, match=r"the kubelet's response has \d+ bytes, more than 1000"
        ) as caught:
            await reader.read()
    assert caught.value.reason == "AnswerTooLarge"


# What the answers mean


def test_device_on_two_numa_nodes_comes_twice_and_is_one() -> None:
    offer = pb.AllocatableResourcesResponse(
        devices=[devices("g", "0", 1), devices("g", "1"), devices("g", "0", 0)]
    )
    answer = parse_answers(pb.ListPodResourcesResponse(), offer)
    assert answer.allocatable_devices == (KnownDevice("g", "0", 0b11), KnownDevice("g", "1", 0))


def test_the_order_of_answers_does_not_matter() -> None:
    def pods(order: Callable[[list[Any]], Any]) -> pb.ListPodResourcesResponse:
        memory = [
            pb.ContainerMemory(memory_type="memory", size=5, topology=topology(1, 0)),
            pb.ContainerMemory(memory_type="hugepages-2Mi", size=4, topology=topology(0)),
        ]
        container = pb.ContainerResources(name="c", cpu_ids=order([3, 1, 2]), memory=order(memory))
        items = [
            pb.PodResources(name="b", namespace="n", containers=[container]),
            pb.PodResources(name="a", namespace="n"),
        ]
        return pb.ListPodResourcesResponse(pod_resources=order(items))

    empty = pb.AllocatableResourcesResponse()
    forwards, backwards = parse_answers(pods(list), empty), parse_answers(pods(lambda it: it[::-1]), empty)
    assert forwards == backwards
    assert [pod.name for pod in forwards.pods] == ["a", "b"]
    assert forwards.pods[1].containers[0] == ContainerResources(
        "c",
        0b1110,
        (
            Block(affinity=0b01, type="hugepages-2Mi", size=4),
            Block(affinity=0b11, type="memory", size=5),
        ),
        (),
    )


def test_pod_level_values_are_kept_apart_from_the_containers() -> None:
    pod = pb.PodResources(
        name="p",
        namespace="n",
        containers=[pb.ContainerResources(name="c", cpu_ids=[1])],
        cpu_ids=[1, 2],
        memory=[pb.ContainerMemory(memory_type="memory", size=7, topology=topology(0))],
    )
    answer = parse_answers(
        pb.ListPodResourcesResponse(pod_resources=[pod]), pb.AllocatableResourcesResponse()
    )
    assert answer.pods[0].containers[0].cpus == 0b010
    assert answer.pods[0].pod_level == ContainerResources(
        "", 0b110, (Block(affinity=1, type="memory", size=7),), ()
    )


def test_dynamic_resources_are_named_by_driver_pool_and_device() -> None:
    claim = pb.DynamicResource(
        claim_name="claim",
        claim_namespace="n",
        claim_resources=[
            pb.ClaimResource(driver_name="gpu.example", pool_name="pool", device_name=name)
            for name in ("gpu-1", "gpu-0")
        ],
    )
    container = pb.ContainerResources(name="c", dynamic_resources=[claim])
    pod = pb.PodResources(name="p", namespace="n", containers=[container])
    answer = parse_answers(
        pb.ListPodResourcesResponse(pod_resources=[pod]), pb.AllocatableResourcesResponse()
    )
    assert answer.pods[0].containers[0].claimed == (
        ("gpu.example", "pool/gpu-0"),
        ("gpu.example", "pool/gpu-1"),
    )


@pytest.mark.parametrize("cpu", [-1, 1 << 40])
def test_impossible_cpu_ids_are_rejected(cpu: int) -> None:
    offer = pb.AllocatableResourcesResponse(cpu_ids=[cpu])
    with pytest.raises(SourceError, match=f"podresources returned the CPU id {cpu}") as caught:
        parse_answers(pb.ListPodResourcesResponse(), offer)
    assert caught.value.reason == "InvalidAnswer"


@pytest.mark.parametrize("numa", [-1, -7, 70000, 1 << 40])
def test_device_on_an_impossible_numa_node_costs_no_other_device(numa: int) -> None:
    def devices(resource: str, node: int) -> pb.ContainerDevices:
        topology = pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
        return pb.ContainerDevices(resource_name=resource, device_ids=["d"], topology=topology)

    offer = pb.AllocatableResourcesResponse(
        cpu_ids=[0, 1], devices=[devices("vendor.example/gpu", numa), devices("vendor.example/nic", 1)]
    )
    answer = parse_answers(pb.ListPodResourcesResponse(), offer)
    assert {device.resource: device.numa for device in answer.allocatable_devices} == {
        "vendor.example/gpu": 1 << NOWHERE,
        "vendor.example/nic": 0b10,
    }
    assert answer.allocatable_cpus == 0b11


# The wire format


def test_the_generated_modules_are_those_of_the_definition(tmp_path: Path) -> None:
    source = Path(pb.__file__).parents[1]
    definition = "numazones_node/podresources.proto"
    status = protoc.main(["protoc", f"-I{source}", f"--descriptor_set_out={tmp_path}/set", definition])
    assert status == 0
    (compiled,) = FileDescriptorSet.FromString((tmp_path / "set").read_bytes()).file
    for message in compiled.message_type:
        for field in message.field:
            field.ClearField("json_name")  # the generated module leaves it to the runtime
    assert compiled == FileDescriptorProto.FromString(pb.DESCRIPTOR.serialized_pb)


# Recordings


async def test_a_recording_without_its_files_says_which_are_needed(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        await reader_for(f"replay:{tmp_path}").read()
    assert str(caught.value) == (
        f"{tmp_path}/podresources_list.pb: No such file or directory; "
        "replay:DIR needs podresources_list.pb and podresources_allocatable.pb"
    )


async def test_a_recording_of_something_else_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "podresources_list.pb").write_bytes(b"\xff" * 9)
    with pytest.raises(SourceError, match=r"pb is not a v1\.ListPodResourcesResponse message"):
        await reader_for(f"replay:{tmp_path}").read()


@pytest.mark.parametrize("endpoint", ["tcp:host", "unix:", "replay:", ""])
def test_an_unknown_endpoint_is_rejected_with_the_known_forms(endpoint: str) -> None:
    with pytest.raises(SourceError, match="write unix:PATH, replay:DIR or none"):
        reader_for(endpoint)
