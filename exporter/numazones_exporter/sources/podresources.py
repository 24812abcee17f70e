"""The kubelet's podresources API, version v1: what pods hold and what could be held.

Over the kubelet's socket (KEP-606, KEP-2403, KEP-3695), or from two recorded answers. Facts that shape
this module: answers come in random order; a device on two NUMA nodes appears once per NUMA node with the
same id; NUMA node 0 is the empty message; pod-level values (KEP-5526) overlap the containers'; plain init
containers never appear. Both calls are made every cycle, so that device plugins that register late appear.
"""

import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message
from grpclib.client import Channel
from grpclib.config import Configuration
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from numazones import cpuset
from numazones.api.snapshot import KnownDevice
from numazones.cpuset import CPUSet
from numazones.kubelet.machine import mask_of
from numazones.kubelet.machine_state import Block
from numazones_exporter.observation import (
    NOT_ASKED,
    SOCKET_MISSING,
    ContainerResources,
    PodResources,
    PodResourcesAnswer,
)
from numazones_exporter.sources.paths import cure_of_denial
from numazones_node import podresources_pb2 as pb
from numazones_node.podresources_grpc import PodResourcesListerStub
from numazones_node.problems import SourceError

T = TypeVar("T")

MAX_MESSAGE_BYTES = 16 * 1024 * 1024
"""The longest answer accepted, as the kubelet's own clients have it."""

_CONFIGURATION = Configuration(
    http2_connection_window_size=MAX_MESSAGE_BYTES, http2_stream_window_size=MAX_MESSAGE_BYTES
)

LIST_FILE = "podresources_list.pb"
ALLOCATABLE_FILE = "podresources_allocatable.pb"


class PodResourcesReader(Protocol):
    """Something that answers as the kubelet's podresources socket does."""

    async def read(self) -> PodResourcesAnswer:
        """Ask for everything once; raises ``SourceError``."""

    async def close(self) -> None:
        """Close all connections."""


class SocketReader:
    """Asks the kubelet over its unix socket; the connection is kept and made anew when it broke."""

    def __init__(self, path: Path) -> None:
        """``path`` of the socket; it need not exist yet."""
        self._path = path
        self._channel: Channel | None = None

    async def read(self) -> PodResourcesAnswer:
        """Call List, then GetAllocatableResources.

        Raises:
            SourceError: there is no socket, nobody answers, or the answer cannot be understood.
        """
        listed, allocatable = await self._call(self._list_and_allocatable)
        return parse_answers(listed, allocatable)

    async def allocatable_devices(self) -> tuple[KnownDevice, ...]:
        """Call GetAllocatableResources alone; return the healthy devices. Raises as ``read`` does."""
        allocatable = await self._call(self._allocatable)
        return parse_answers(pb.ListPodResourcesResponse(), allocatable).allocatable_devices

    async def _call(self, ask: Callable[[PodResourcesListerStub], Awaitable[T]]) -> T:
        """Ask on the kept connection; whatever goes wrong is a ``SourceError``."""
        try:
            self._path.stat()
            if self._channel is None:
                self._channel = Channel(path=str(self._path), codec=_LimitedCodec(), config=_CONFIGURATION)
            return await ask(PodResourcesListerStub(self._channel))
        except AttributeError as error:  # how grpclib fails where the connection is closed before it sends
            raise _source_error(self._path, StreamTerminatedError()) from error
        except FileNotFoundError as error:
            raise SourceError(
                SOCKET_MISSING,
                f"{self._path} does not exist: is a kubelet running here, and is its directory "
                "pod-resources mounted (the directory, not the socket)?",
            ) from error
        except (OSError, GRPCError, StreamTerminatedError, ProtocolError, DecodeError) as error:
            raise _source_error(self._path, error) from error
        finally:
            if sys.exception() is not None:  # failed, or given up on: the next read starts afresh
                await self.close()

    @staticmethod
    async def _list_and_allocatable(
        kubelet: PodResourcesListerStub,
    ) -> tuple[pb.ListPodResourcesResponse, pb.AllocatableResourcesResponse]:
        listed = await kubelet.List(pb.ListPodResourcesRequest())
        return listed, await kubelet.GetAllocatableResources(pb.AllocatableResourcesRequest())

    @staticmethod
    async def _allocatable(kubelet: PodResourcesListerStub) -> pb.AllocatableResourcesResponse:
        return await kubelet.GetAllocatableResources(pb.AllocatableResourcesRequest())

    async def close(self) -> None:
        """Close the connection; the next read opens a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None


def _source_error(path: Path, error: Exception) -> SourceError:
    if isinstance(error, GRPCError):
        detail = error.message or "no details"
        return SourceError("KubeletRejected", f"{path}: the kubelet returned {error.status.name}: {detail}")
    if isinstance(error, DecodeError):
        return SourceError("InvalidAnswer", f"{path}: the response is not a podresources v1 message")
    if isinstance(error, OSError):
        cure = cure_of_denial() if isinstance(error, PermissionError) else "is the kubelet running?"
        return SourceError("CannotConnect", f"{path}: {error.strerror or error}; {cure}")
    cause = str(error) or "the connection was lost"
    return SourceError("ConnectionLost", f"{path}: {cause}; the next cycle reconnects")


class _LimitedCodec(ProtoCodec):
    """Rejects answers beyond the limit of the kubelet's own clients."""

    def decode(self, data: bytes, message_type: Any) -> Any:
        if len(data) > MAX_MESSAGE_BYTES:
            raise SourceError(
                "AnswerTooLarge",
                f"the kubelet's response has {len(data)} bytes, more than {MAX_MESSAGE_BYTES}",
            )
        return super().decode(data, message_type)


class ReplayReader:
    """Answers from ``podresources_list.pb`` and ``podresources_allocatable.pb`` of a directory."""

    def __init__(self, directory: Path) -> None:
        """``directory`` of the two files."""
        self._directory = directory

    async def read(self) -> PodResourcesAnswer:
        """Read both files.

        Raises:
            SourceError: a file is missing or is no such answer.
        """
        listed, allocatable = pb.ListPodResourcesResponse(), pb.AllocatableResourcesResponse()
        self._parse(LIST_FILE, listed)
        self._parse(ALLOCATABLE_FILE, allocatable)
        return parse_answers(listed, allocatable)

    async def close(self) -> None:
        """Nothing is kept open."""

    def _parse(self, name: str, message: Message) -> None:
        path = self._directory / name
        try:
            message.ParseFromString(path.read_bytes())
        except OSError as error:
            raise SourceError(
                "RecordingMissing",
                f"{path}: {error.strerror}; replay:DIR needs {LIST_FILE} and {ALLOCATABLE_FILE}",
            ) from error
        except DecodeError as error:
            raise SourceError(
                "InvalidAnswer", f"{path} is not a {message.DESCRIPTOR.full_name} message; record it again"
            ) from error


class NoReader:
    """The reader where podresources are not to be read."""

    async def read(self) -> PodResourcesAnswer:
        """Raise ``SourceError``: the settings switch this source off."""
        raise SourceError(NOT_ASKED, "podresources are not read (--podresources none)")

    async def close(self) -> None:
        """Nothing is kept open."""


def reader_for(endpoint: str) -> PodResourcesReader:
    """Choose the reader for ``unix:PATH``, ``replay:DIR`` or ``none``.

    Raises:
        SourceError: the endpoint is none of these.
    """
    scheme, _, rest = endpoint.partition(":")
    if scheme == "unix" and rest:
        return SocketReader(Path(rest.removeprefix("//")))
    if scheme == "replay" and rest:
        return ReplayReader(Path(rest))
    if endpoint == "none":
        return NoReader()
    raise SourceError(
        "InvalidEndpoint", f"{endpoint!r} is not a podresources endpoint; write unix:PATH, replay:DIR or none"
    )


def parse_answers(
    listed: pb.ListPodResourcesResponse, allocatable: pb.AllocatableResourcesResponse
) -> PodResourcesAnswer:
    """Turn both answers into values with a definite order.

    Raises:
        SourceError: an answer holds a CPU id that cannot be one.
    """
    try:
        return PodResourcesAnswer(
            pods=tuple(sorted(map(_pod, listed.pod_resources), key=lambda pod: (pod.namespace, pod.name))),
            allocatable_cpus=_mask(allocatable.cpu_ids),
            allocatable_memory=_memory(allocatable.memory),
            allocatable_devices=_devices(allocatable.devices),
        )
    except (ValueError, OverflowError) as error:
        raise SourceError("InvalidAnswer", f"podresources returned {error}") from error


def _pod(pod: pb.PodResources) -> PodResources:
    pod_level = None
    if pod.cpu_ids or pod.memory:
        pod_level = ContainerResources("", _mask(pod.cpu_ids), _memory(pod.memory), ())
    return PodResources(pod.namespace, pod.name, tuple(map(_container, pod.containers)), pod_level)


def _container(container: pb.ContainerResources) -> ContainerResources:
    return ContainerResources(
        name=container.name,
        cpus=_mask(container.cpu_ids),
        memory=_memory(container.memory),
        devices=_devices(container.devices),
        claimed=tuple(
            sorted(
                (part.driver_name, f"{part.pool_name}/{part.device_name}")
                for claim in container.dynamic_resources
                for part in claim.claim_resources
            )
        ),
    )


def _memory(blocks: Iterable[pb.ContainerMemory]) -> tuple[Block, ...]:
    found = (
        Block(affinity=_numas(block.topology), type=block.memory_type, size=block.size) for block in blocks
    )
    return tuple(sorted(found, key=lambda block: (block.type, block.affinity, block.size)))


def _devices(entries: Iterable[pb.ContainerDevices]) -> tuple[KnownDevice, ...]:
    numas: dict[tuple[str, str], int] = {}
    for entry in entries:
        for device in entry.device_ids:
            key = (entry.resource_name, device)
            numas[key] = numas.get(key, 0) | _numas(entry.topology)
    return tuple(KnownDevice(resource, device, numas[resource, device]) for resource, device in sorted(numas))


def _numas(topology: pb.TopologyInfo) -> int:
    """Return the NUMA nodes; ids that no machine has, such as -1, become ``NOWHERE``."""
    return mask_of(node.ID for node in topology.nodes)


def _mask(ids: Iterable[int]) -> CPUSet:
    mask = 0
    for number in ids:
        if not 0 <= number <= cpuset.MAX_ID:
            raise ValueError(f"the CPU id {number}, which is out of range")
        mask |= 1 << number
    return mask
