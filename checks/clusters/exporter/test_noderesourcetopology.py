"""The NodeResourceTopology object is written when it differs, and never otherwise."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.exporter.fake_api import FakeAPI
from numazones.api.meta import ObjectMeta, OwnerReference
from numazones.api.numazone import NUMAZone, NUMAZoneSpec, NUMAZoneStatus, ZoneResource, zone_name
from numazones_apiserver import InProcess
from numazones_client import NO_RETRY, Client, ServerError, UnknownResource
from numazones_client.resources import NODE_RESOURCE_TOPOLOGIES
from numazones_exporter.metrics import ExporterMetrics
from numazones_exporter.noderesourcetopology import NodeResourceTopologyPublisher
from numazones_exporter.publishing import RESYNC_SECONDS, ObjectWriter

PATH = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/worker-3"
THEIRS: dict[str, Any] = {
    "apiVersion": "topology.node.k8s.io/v1alpha2",
    "kind": "NodeResourceTopology",
    "metadata": {"name": "worker-3"},
    "zones": [{"name": "theirs", "type": "Node"}],
}
OWNER = OwnerReference(api_version="v1", kind="Node", name="worker-3", uid="node-uid")


def zones(available: str = "22") -> list[NUMAZone]:
    cpu = ZoneResource(
        name="cpu", capacity="32", reserved="2", allocatable="30", assigned="8", available=available
    )
    return [
        NUMAZone(
            metadata=ObjectMeta(name=zone_name("worker-3", numa_id), owner_references=(OWNER,)),
            spec=NUMAZoneSpec(node_name="worker-3", numa_id=numa_id),
            status=NUMAZoneStatus(resources=(cpu,)),
        )
        for numa_id in (0, 1)
    ]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def fake() -> FakeAPI:
    return await FakeAPI().define()


@pytest.fixture
async def writer(fake: FakeAPI) -> AsyncIterator[ObjectWriter]:
    async with Client(transport=InProcess(fake), retry=NO_RETRY) as client:
        yield ObjectWriter(client, ExporterMetrics(CollectorRegistry()))


@pytest.fixture
def publisher(writer: ObjectWriter, clock: Clock) -> NodeResourceTopologyPublisher:
    return NodeResourceTopologyPublisher(writer, "worker-3", clock=clock)


async def test_it_is_named_after_the_node_and_owned_by_it(
    publisher: NodeResourceTopologyPublisher, fake: FakeAPI
) -> None:
    assert await publisher.publish(zones()) == 1
    body = fake.topology
    assert (body["apiVersion"], body["kind"]) == ("topology.node.k8s.io/v1alpha2", "NodeResourceTopology")
    assert body["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "worker-3", "uid": "node-uid"}
    ]
    assert body["zones"][1]["name"] == "node-1"
    assert body["zones"][1]["resources"] == [
        {"name": "cpu", "capacity": "32", "allocatable": "30", "available": "22"}
    ]


async def test_nothing_is_written_without_changes_even_after_a_restart(
    publisher: NodeResourceTopologyPublisher, writer: ObjectWriter, fake: FakeAPI
) -> None:
    await publisher.publish(zones())
    assert await publisher.publish(zones()) == 0
    fake.requests.clear()
    restarted = NodeResourceTopologyPublisher(writer, "worker-3")
    assert await restarted.publish(zones()) == 0
    assert fake.requests == [("GET", PATH)]


async def test_a_change_and_what_others_changed_are_written(
    publisher: NodeResourceTopologyPublisher, fake: FakeAPI, clock: Clock
) -> None:
    await publisher.publish(zones())
    assert await publisher.publish(zones(available="20")) == 1
    fake.store.delete(fake.topologies, ("", "worker-3"))
    clock.now += RESYNC_SECONDS
    assert await publisher.publish(zones(available="20")) == 1
    assert fake.topology["zones"][0]["resources"][0]["available"] == "20"


async def test_a_failed_write_is_repeated(publisher: NodeResourceTopologyPublisher, fake: FakeAPI) -> None:
    fake.fail(500, "etcd is away", after=1)
    with pytest.raises(
        ServerError, match=r"noderesourcetopologies\.topology\.node\.k8s\.io worker-3: etcd is away"
    ):
        await publisher.publish(zones())
    assert await publisher.publish(zones()) == 1


async def test_a_missing_definition_is_named(publisher: NodeResourceTopologyPublisher, fake: FakeAPI) -> None:
    fake.fail(404, "the server could not find the requested resource", reason="NotFound")
    with pytest.raises(UnknownResource, match="install the definition of noderesourcetopologies"):
        await publisher.publish(zones())


async def test_object_of_another_writer_is_left_alone_and_logged_once(
    publisher: NodeResourceTopologyPublisher,
    fake: FakeAPI,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
) -> None:
    conflict = 'Apply failed with 1 conflict: conflict with "koordlet": .zones'
    fake.store.put(fake.topologies, THEIRS | {"metadata": {"name": "worker-3", "uid": "u"}})
    fake.fail(409, conflict, after=1, reason="Conflict")
    assert await publisher.publish(zones()) == 0
    assert fake.topology["zones"] == THEIRS["zones"]
    assert "because another program writes it: " + conflict in caplog.text
    fake.requests.clear()
    assert await publisher.publish(zones(available="20")) == 0
    assert fake.requests == []
    clock.now += RESYNC_SECONDS
    fake.fail(409, conflict, after=1, reason="Conflict")
    assert await publisher.publish(zones()) == 0
    assert caplog.text.count("because another program writes it") == 1


async def test_once_the_other_writer_has_gone_the_object_is_ours(
    publisher: NodeResourceTopologyPublisher, fake: FakeAPI, clock: Clock
) -> None:
    fake.fail(409, 'conflict with "koordlet"', after=1, reason="Conflict")
    assert await publisher.publish(zones()) == 0
    clock.now += RESYNC_SECONDS
    assert await publisher.publish(zones()) == 1
    assert await publisher.publish(zones(available="20")) == 1


async def test_fields_of_others_are_never_taken_by_force(
    publisher: NodeResourceTopologyPublisher, fake: FakeAPI, clock: Clock
) -> None:
    async with Client(transport=InProcess(fake)) as client:
        await client.apply(NODE_RESOURCE_TOPOLOGIES, THEIRS, field_manager="koordlet")
        assert await publisher.publish(zones()) == 0
        assert fake.topology["zones"] == THEIRS["zones"]
        await client.delete(NODE_RESOURCE_TOPOLOGIES, "worker-3")
    clock.now += RESYNC_SECONDS
    assert await publisher.publish(zones()) == 1
