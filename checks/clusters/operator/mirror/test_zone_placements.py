"""Zones say which placement model decides on them and what its books say, and nothing where kubelets do."""

import asyncio
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import Loop, closed_loop
from checks.clusters.operator.kubectl import run
from numazones.api.numazone import NUMAZone
from numazones.api.zones_from_node import zones_from_node
from numazones.cluster.dump import Dump, nodes_of
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.placement.models import parse_record
from numazones_client import Forbidden, NotFound
from numazones_client.errors import Request
from numazones_client.resources import NUMAZONES
from numazones_koordinator.identity import NAME as KOORDINATOR
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.decoding import ZoneReport
from numazones_operator.mirror.node_placement import NodePlacement
from numazones_operator.notices import zone_placements
from numazones_operator.notices.zone_placements import FIELD_MANAGER, ZonePlacements
from numazones_simulator import node_kinds, placement_models
from numazones_simulator.node_kinds import MODEL_LABEL
from numazones_topology_aware.identity import NAME as TOPOLOGY_AWARE
from numazones_topology_aware.node import Node as TopologyAwareNode
from tests.numazones.dra import building
from tests.operator.mirror.test_node_placement import Setting
from tests.waiting import eventually

REQUEST = Request("patch", "numazones.numazones.io x")
RECORD = {"grants": [1, 2]}
FIELDS = {"placement", "dynamicResources"}
"""What the operator writes on a zone here."""


class Written:
    """A node's zones in the mirror; what is written comes back at once, as the watch would bring it."""

    def __init__(self) -> None:
        self.setting = Setting()
        self.state = self.setting.state
        self.setting.topology_aware()
        self.bodies: dict[str, dict[str, Any]] = {}
        self.refusals: dict[str, Exception] = {}
        self.writes: list[str] = []
        self.events: list[dict[str, Any]] = []
        for zone in zones_from_node(self.setting.bare, node_name="n", pods={}):
            self.bodies[zone.metadata.name] = zone.to_api()
        self.placements = ZonePlacements(
            self,  # type: ignore[arg-type]
            self.state,
            rate=1e9,
            events=self,  # type: ignore[arg-type]
            metrics=Metrics(CollectorRegistry()),
        )

    async def apply(self, resource: Any, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        assert resource is NUMAZONES
        assert options == {"field_manager": FIELD_MANAGER, "subresource": "status"}
        assert body["status"].keys() <= FIELDS
        name = body["metadata"]["name"]
        self.writes.append(name)
        if name in self.refusals:
            raise self.refusals[name]
        known = self.bodies[name]
        status = {key: value for key, value in known["status"].items() if key not in FIELDS}
        self.bodies[name] = after = {**known, "status": {**status, **json.loads(json.dumps(body["status"]))}}
        self.state.zones.put(ZoneReport.from_api(after))
        return after

    def post(self, about: dict[str, str], **event: Any) -> bool:
        self.events.append({"name": about["name"], **event})
        return True

    async def look(self) -> list[str]:
        """Look once; return the zones that were written."""
        self.writes.clear()
        await self.placements.look()
        return self.writes.copy()

    def told(self, numa: int = 0) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.bodies[f"n-numa-{numa}"]["status"].get("placement")
        return found

    def devices(self, numa: int = 0) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.bodies[f"n-numa-{numa}"]["status"].get("dynamicResources")
        return found

    @property
    def names(self) -> list[str]:
        return sorted(self.bodies)


async def test_each_zone_names_its_model_and_remaining_resources() -> None:
    written = Written()
    assert await written.look() == written.names
    first = written.told()
    assert first is not None
    assert (first["model"], first["decider"]) == (TOPOLOGY_AWARE, "the NRI topology-aware policy")
    assert first["objects"] == ["NodeResourceTopology", "TopologyAwarePolicy"]
    assert (first["assigned"], first["cpu"]["assigned"]) == ("0", "0")
    before = int(first["free"])
    assert await written.look() == []
    written.setting.bind("a", "2")
    assert await written.look()
    figures = [written.told(numa) or {} for numa in range(len(written.names))]
    assert sum(int(one["assigned"]) for one in figures) == 2
    assert {one["cpu"]["available"] for one in figures} == {one["free"] for one in figures}
    node = written.state.node("n")
    assert node is not None
    assert node.occupancy is not None
    assert [int(one["free"]) for one in figures] == [zone.free for zone in node.occupancy.zones]
    assert before > min(int(one["free"]) for one in figures)


async def test_zones_of_a_kubelets_node_are_not_written() -> None:
    written = Written()
    written.state.topologies.discard("n")
    assert await written.look() == []


async def test_zones_list_claimable_devices_and_a_claim_changes_one_zone() -> None:
    written = Written()
    written.state.topologies.discard("n")
    devices = [building.device("gpu-0", 0), building.device("gpu-1", 1), building.device("gpu-2", 1)]
    slices = Slice.from_api(building.resource_slice(*devices, node="n", pool="n"))
    written.state.devices.slices.put(slices)
    counts = {"devices": 2, "allocated": 0, "available": 2}
    assert await written.look() == written.names[:2]
    assert written.devices(1) == {"drivers": [{"driver": "gpu.example", **counts}]}
    assert written.told(1) is None

    written.state.devices.slices.put(slices)
    written.state.devices.claims.put(DeviceClaim.from_api(building.claim()))
    assert await written.look() == []

    taken = building.claim(building.result("gpu-2", pool="n"))
    written.state.devices.claims.put(DeviceClaim.from_api(taken))
    assert await written.look() == [written.names[1]]
    counts = {"devices": 2, "allocated": 1, "available": 1}
    assert written.devices(1) == {"drivers": [{"driver": "gpu.example", **counts}]}

    own = building.device_class("gpus", 'device.driver == "gpu.example"')
    written.state.devices.classes.put(DeviceClass.from_api(own))
    assert await written.look() == written.names[:2]
    found = written.devices(1)
    assert found is not None
    assert found["drivers"][0]["classes"] == [{"name": "gpus", **counts}]

    written.state.devices.slices.discard(slices.name)
    assert await written.look() == written.names[:2]
    assert written.devices(1) is None


async def test_devices_and_books_of_a_model_are_written_together() -> None:
    written = Written()
    body = building.resource_slice(building.device("gpu-0", 0), node="n", pool="n")
    written.state.devices.slices.put(Slice.from_api(body))
    assert await written.look() == written.names
    assert written.told() is not None
    assert written.devices() is not None


async def test_the_field_goes_where_the_kubelet_decides_again() -> None:
    written = Written()
    await written.look()
    written.state.topologies.discard("n")
    assert await written.look() == written.names
    assert written.told() is None
    assert await written.look() == []


async def test_unreadable_node_gives_the_reason_and_keeps_its_record(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written()
    monkeypatch.setattr(NodePlacement, "record", lambda _self: RECORD)
    await written.look()
    record = (written.told() or {})["record"]
    written.state.pods.put(written.setting.pod("unreadable", "some"))
    await written.look()
    found = written.told()
    assert found is not None
    assert found["unknown"]
    assert (found["free"], found["assigned"], found["memoryFree"]) == ("?", "?", "?")
    assert "cpu" not in found
    assert found["record"] == record


async def test_new_leader_reads_the_record_from_the_lowest_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written = Written()
    monkeypatch.setattr(NodePlacement, "record", lambda _self: RECORD)
    await written.look()
    lowest, *others = [written.told(numa) or {} for numa in range(len(written.names))]
    assert parse_record(lowest["record"]) == RECORD
    assert not any("record" in one for one in others)
    known = written.state.record("n")
    assert known is not None
    assert parse_record(known.published_record) == RECORD
    assert ZoneReport.from_api(written.bodies["n-numa-0"]).record == lowest["record"]


async def test_a_record_that_no_zone_can_hold_is_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = Written()
    monkeypatch.setattr(zone_placements, "MAX_RECORD", 5)
    monkeypatch.setattr(NodePlacement, "record", lambda _self: RECORD)
    await written.look()
    assert "record" not in (written.told() or {})
    assert "a NUMAZone has room for only 5" in caplog.text


async def test_a_zone_that_vanishes_harms_nobody() -> None:
    written = Written()
    written.refusals["n-numa-0"] = NotFound(REQUEST, "not found")
    assert await written.look() == written.names
    assert written.events == []
    assert await written.look() == ["n-numa-0"]  # until the watch says that it has gone
    assert await written.look() == []


async def test_missing_right_is_reported_once_on_the_node_and_retried(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(zone_placements, "_PERIOD", 0.01)
    monkeypatch.setattr(zone_placements, "_RETRY", 0.05)
    written = Written()
    written.refusals["n-numa-1"] = Forbidden(REQUEST, "not allowed")
    running = asyncio.create_task(written.placements.run())

    async def tried() -> bool:
        return written.writes.count("n-numa-1") > 2

    await eventually(tried)
    assert [event["name"] for event in written.events] == ["n"]
    assert written.events[0]["reason"] == "PlacementNotWritten"
    assert "to NUMAZone n-numa-1: " in written.events[0]["message"]
    assert caplog.text.count("could not write the placement") == 1
    written.refusals.clear()

    async def said() -> bool:
        return all(written.told(numa) for numa in range(len(written.names)))

    await eventually(said)
    running.cancel()


async def test_new_leader_and_plugin_continue_from_the_last_record() -> None:
    written = Written()
    setting = written.setting
    await written.look()
    # By their names, which is how pods of the same second are read, these came the other way round; what
    # made room in between is gone.
    for name, cpu in (("c", "3"), ("b", "3"), ("a", "2")):
        setting.bind(name, cpu)
    setting.end("b")
    setting.publish()
    await written.look()
    followed = setting.seen()
    assert isinstance(followed, TopologyAwareNode)

    def mirrored(bodies: Iterable[dict[str, Any]]) -> TopologyAwareNode | KoordinatorNode | None:
        fresh = Setting()
        fresh.policy = setting.policy
        fresh.node()
        fresh.configured()
        for body in bodies:
            fresh.state.zones.put(ZoneReport.from_api(body))
        for name, cpu in (("a", "2"), ("c", "3")):
            fresh.state.pods.put(fresh.pod(name, cpu))
        fresh.publish()
        return fresh.seen()

    found = mirrored(written.bodies.values())
    assert isinstance(found, TopologyAwareNode)
    assert found.state_key == followed.state_key
    bare = [
        {**body, "status": {key: value for key, value in body["status"].items() if key != "placement"}}
        for body in written.bodies.values()
    ]
    assert mirrored(bare) is None


def test_a_record_that_is_no_object_counts_as_none() -> None:
    for text in ("", "[1]", "{", "null", "[" * 100_000):
        assert parse_record(text) is None


async def decided(loop: Loop, name: str, model: str, **more: Any) -> None:
    await loop.create_pod(
        name,
        cpu="4",
        nodeSelector={MODEL_LABEL: model},
        tolerations=[{"key": MODEL_LABEL, "operator": "Exists"}],
        **more,
    )


async def test_kubectl_dump_and_operator_agree_on_every_zone(tmp_path: Path, kubectl: str) -> None:
    async with closed_loop(tmp_path) as loop:
        specs = node_kinds.mixed(2, kinds=placement_models.node_kinds())
        await loop.start_nodes([*specs, node_kinds.single_numa_node("plain", "10.0.9.9")])
        loop.start_scheduler()
        operator = await loop.start_operator()
        labels = {"koordinator.sh/qosClass": "LSR"}
        await decided(loop, "one", KOORDINATOR, schedulerName="koord-scheduler", labels=labels)
        await decided(loop, "two", TOPOLOGY_AWARE)
        state = operator.pipeline.state

        async def shown() -> list[tuple[str, ...]]:
            lines = (await run(kubectl, loop, "get", "numazones", "-o", "wide")).splitlines()
            heads = ("NAME", "POLICY", "ASSIGNED", "FREE")
            columns = [lines[0].index(head) for head in heads]
            return sorted(tuple(line[at:].split("  ")[0].strip() for at in columns) for line in lines[1:])

        def booked(nodes: Any) -> list[tuple[str, ...]]:
            return sorted(
                (f"{node.name}-numa-{zone.numa}", node.occupancy.policy, str(zone.cpus[0]), str(zone.free))
                for node in nodes
                if node.occupancy is not None
                for zone in node.occupancy.zones
            )

        async def agree() -> bool:
            found = booked(state.all_nodes())
            pods = {pod.node for pod in state.pods if pod.name in {"one", "two"}}
            return len(found) == len(state.zones) > 0 and "" not in pods and await shown() == found

        await eventually(agree, what="columns and books agree")
        rows = await shown()
        assert {row[1] for row in rows} >= {KOORDINATOR, TOPOLOGY_AWARE, "single-numa-node"}
        assert {row[2] for row in rows if row[1] == KOORDINATOR} >= {"4"}
        dump = json.loads(await run(kubectl, loop, "get", "nodes,pods,numazones", "-A", "-o", "json"))
        found = {node.name: node for node in nodes_of(dump["items"], lambda: _pods(dump))}
        for name, node in found.items():
            if name == "plain":
                assert node.known is not None
            else:
                assert node.unknown is not None
                assert "the objects that it reads are missing: " in node.unknown.message
                assert "noderesourcetopologies.topology.node.k8s.io" in node.unknown.message
        # With the objects that the sentence names, the dump says what the operator says.
        kinds = "noderesourcetopologies,devices.scheduling.koordinator.sh,topologyawarepolicies.config.nri"
        more = json.loads(await run(kubectl, loop, "get", kinds, "-A", "-o", "json"))
        items = [*dump["items"], *more["items"]]
        assert booked(nodes_of(items, lambda: _pods(dump))) == rows
        zones = {body["metadata"]["name"]: body for body in await loop.client.list(NUMAZONES)}
        marked = {name for name, body in zones.items() if "placement" in body["status"]}
        assert marked == {row[0] for row in rows if row[1] in {KOORDINATOR, TOPOLOGY_AWARE}}
        # An exporter that writes its zones again leaves the field alone, and each owns what it wrote.
        one = json.loads(
            await run(kubectl, loop, "get", "nz", min(marked), "-o=json", "--show-managed-fields")
        )
        owners = {
            owner["manager"]: owner["fieldsV1"]["f:status"]
            for owner in one["metadata"]["managedFields"]
            if owner.get("subresource") == "status"
        }
        assert owners[FIELD_MANAGER].keys() == {"f:placement"}
        assert "f:placement" not in owners["numazones-exporter"]


def _pods(dump: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in dump["items"] if item["kind"] == "Pod"]


def test_a_dump_whose_model_is_not_installed_here_says_so() -> None:
    placement = {"model": "pinned", "decider": "Pinned", "assigned": "0", "free": "8"}
    zone = {
        "kind": "NUMAZone",
        "metadata": {"name": "n-numa-0"},
        "spec": {"nodeName": "n", "numaID": 0},
        "status": {"snapshot": "s", "zones": 1, "placement": placement},
    }
    NUMAZone.from_api(zone)
    node = {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8"}}}
    [found] = nodes_of([node, zone], list)
    assert found.unknown is not None
    assert found.unknown.message.startswith(
        "the node's pods are placed by Pinned, which this installation does not support"
    )
    assert Dump.of([node, zone]).nodes
