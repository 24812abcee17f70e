"""Clients' view when a simulated kubelet's socket ends: the same as with a real kubelet."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from grpclib.client import Channel
from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream

from numazones_node import podresources_pb2 as pb
from numazones_node.podresources_grpc import PodResourcesListerStub
from numazones_simulator.kubelet.unix_server import UnixServer

PATIENCE = 20.0
"""Only what hangs takes so long."""


class Lister:
    """Answers List, once it may."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = asyncio.Event()
        self.cancelled = False

    def __mapping__(self) -> dict[str, Handler]:
        request, response = pb.ListPodResourcesRequest, pb.ListPodResourcesResponse
        return {
            "/v1.PodResourcesLister/List": Handler(self._list, Cardinality.UNARY_UNARY, request, response)
        }

    async def _list(self, stream: Stream[Any, Any]) -> None:
        await stream.recv_message()
        self.asked.set()
        try:
            await self.may_answer.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        await stream.send_message(pb.ListPodResourcesResponse())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "pod-resources" / "kubelet.sock"


async def ended(server: UnixServer) -> None:
    async with asyncio.timeout(PATIENCE):
        await server.__aexit__(None, None, None)


async def test_idle_client_is_disconnected_and_gets_no_more_answers(path: Path) -> None:
    server = await UnixServer(path, Lister()).__aenter__()
    async with Channel(path=str(path)) as channel:
        stub = PodResourcesListerStub(channel)
        await stub.List(pb.ListPodResourcesRequest())
        await ended(server)
        with pytest.raises((StreamTerminatedError, OSError)):
            await stub.List(pb.ListPodResourcesRequest())
    assert not any(path.parent.iterdir()), "the socket is gone"


async def test_waiting_client_learns_that_the_connection_is_lost(path: Path) -> None:
    lister = Lister()
    lister.may_answer.clear()
    server = await UnixServer(path, lister).__aenter__()
    async with Channel(path=str(path)) as channel:
        asking = asyncio.create_task(PodResourcesListerStub(channel).List(pb.ListPodResourcesRequest()))
        await lister.asked.wait()
        await ended(server)
        assert lister.cancelled
        with pytest.raises(StreamTerminatedError):
            await asyncio.wait_for(asking, PATIENCE)


async def test_a_client_that_never_says_anything_is_hung_up_on(path: Path) -> None:
    server = await UnixServer(path, Lister()).__aenter__()
    incoming, outgoing = await asyncio.open_unix_connection(path)
    await incoming.readexactly(9)  # the head of the server's first frame: it knows of the client
    await ended(server)
    async with asyncio.timeout(PATIENCE):
        await incoming.read()  # to the end
    outgoing.close()


@pytest.mark.parametrize("turns", range(4))
async def test_a_client_that_just_came_is_hung_up_on(path: Path, turns: int) -> None:
    """In whatever state of being accepted it is: after none, one, two turns of the event loop."""
    server = await UnixServer(path, Lister()).__aenter__()
    incoming, outgoing = await asyncio.open_unix_connection(path)
    for _ in range(turns):
        await asyncio.sleep(0)
    await ended(server)
    with suppress(ConnectionResetError):  # nobody had accepted it
        async with asyncio.timeout(PATIENCE):
            await incoming.read()
    outgoing.close()
