"""Zones of a silent exporter say so, once, and no longer when it is back; nothing is written otherwise."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from checks.clusters.operator.closed_loop import OPTIONS, closed_loop
from checks.clusters.operator.kubectl import run
from numazones_client import NotFound
from numazones_client.errors import Request
from numazones_client.resources import LEASES, NUMAZONES
from numazones_operator.metrics.registry import Metrics
from numazones_operator.mirror.cluster_state import ClusterState
from numazones_operator.mirror.decoding import Heartbeat, ZoneReport
from numazones_operator.notices import stale_exporters
from numazones_operator.notices.stale_exporters import StaleExporters
from numazones_simulator import node_kinds
from tests.waiting import eventually

BEGAN = "2026-01-31T08:00:00.000000Z"
LATER = "2026-01-31T09:00:00.000000Z"
REQUEST = Request("get", "leases.coordination.k8s.io x")


def lease(node: str, renewed: str, *, seconds: int = 180) -> dict[str, Any]:
    return {
        "apiVersion": LEASES.api_version,
        "kind": "Lease",
        "metadata": {
            "name": f"numazones-exporter-{node}",
            "namespace": OPTIONS.exporter_namespace,
            "labels": {"numazones.io/node": node},
        },
        "spec": {"holderIdentity": node, "leaseDurationSeconds": seconds, "renewTime": renewed},
    }


class Setting:
    """Zones and Leases fed by hand; what is written comes back at once, as the watch would bring it."""

    def __init__(self, nodes: int, *, zones: int = 2) -> None:
        self.now = 1000.0
        self.writes = 0
        self.leases: dict[str, dict[str, Any]] = {}
        self.state = ClusterState(
            settle=1.0, pod_changed=lambda *_: None, clock=lambda: self.now, wall=lambda: self.now
        )
        self.bodies: dict[str, dict[str, Any]] = {}
        for number in range(nodes):
            node = f"node-{number}"
            self.beat(node, BEGAN)
            self.beat(node, LATER)
            for numa in range(zones):
                body = {
                    "metadata": {"name": f"{node}-numa-{numa}"},
                    "spec": {"nodeName": node, "numaID": numa},
                    "status": {"snapshot": "s", "zones": zones},
                }
                self.bodies[body["metadata"]["name"]] = body  # type: ignore[index]
                self.state.zones.put(ZoneReport.from_api(body))
        self.stale_exporters = StaleExporters(
            self,  # type: ignore[arg-type]
            self.state,
            namespace="numazones-system",
            metrics=Metrics(CollectorRegistry()),
            now=lambda: datetime(2026, 1, 31, 10, tzinfo=UTC),
        )

    def beat(self, node: str, renewed: str) -> None:
        self.leases[f"numazones-exporter-{node}"] = lease(node, renewed)
        self.state.heartbeats.put(Heartbeat.from_api(lease(node, renewed)))

    async def get(self, _resource: Any, name: str, **_: Any) -> dict[str, Any]:
        if name not in self.leases:
            raise NotFound(REQUEST, "not found")
        return self.leases[name]

    async def apply(self, resource: Any, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        assert resource is NUMAZONES
        assert options == {"field_manager": "numazones-operator", "subresource": "status"}
        assert body["status"].keys() <= {"silence"}
        self.writes += 1
        before = self.bodies[body["metadata"]["name"]]
        status = {key: value for key, value in before["status"].items() if key != "silence"}
        self.bodies[body["metadata"]["name"]] = after = {**before, "status": {**status, **body["status"]}}
        self.state.zones.put(ZoneReport.from_api(after))
        return after

    async def looks(self, times: int = 2) -> int:
        """Look several times; return the number of writes."""
        before = self.writes
        for _ in range(times):
            await self.stale_exporters.look()
        return self.writes - before

    def said(self, name: str) -> dict[str, Any] | None:
        found: dict[str, Any] | None = self.bodies[name]["status"].get("silence")
        return found


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pace is tested by itself; and nobody waits five seconds between looks."""
    monkeypatch.setattr(stale_exporters, "_RATE", 1e9)
    monkeypatch.setattr(stale_exporters, "_PERIOD", 0.05)


async def test_zone_shows_how_long_its_exporter_is_silent() -> None:
    setting = Setting(2)
    setting.now += 170.0
    setting.beat("node-1", "2026-01-31T09:02:50.000000Z")
    setting.now += 20.0
    assert await setting.looks() == 2
    assert setting.said("node-0-numa-1") == {
        "state": "Silent",
        "since": "2026-01-31T09:00:00Z",
        "message": "the exporter on node-0 has not renewed its Lease since 2026-01-31T09:00:00Z, so the "
        "NUMAZone may be out of date; check that its pod is running: kubectl -n numazones-system "
        "get pods -o wide",
    }
    assert setting.said("node-1-numa-0") is None
    setting.beat("node-0", "2026-01-31T09:30:00.000000Z")
    assert await setting.looks(1) == 2
    assert setting.said("node-0-numa-0") is setting.said("node-0-numa-1") is None


async def test_ten_thousand_silent_zones_cost_one_write_each() -> None:
    setting = Setting(2500, zones=4)
    assert await setting.looks(3) == 0
    setting.now += 1000.0
    assert await setting.looks(3) == 10_000
    assert await setting.looks(3) == 0


async def test_writes_are_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stale_exporters, "_RATE", 25.0)
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr("numazones_operator.rate_limit.asyncio.sleep", nap)
    setting = Setting(100)
    setting.now += 1000.0
    assert await setting.looks() == 200
    # The sleeps of this test take no time, so each is for all that went before it.
    assert naps[-1] == pytest.approx((200 - 25) / 25, abs=1.0)


async def test_renewal_missed_by_the_watch_keeps_zones_unmarked() -> None:
    setting = Setting(1)
    setting.now += 1000.0
    setting.leases["numazones-exporter-node-0"] = lease("node-0", "2026-01-31T09:30:00.000000Z")
    assert await setting.looks() == 0


async def test_exporter_that_writes_zones_before_its_lease_is_not_silent() -> None:
    setting = Setting(1)
    setting.state.heartbeats.remove(Heartbeat.from_api(setting.leases.pop("numazones-exporter-node-0")))
    assert await setting.looks(1) == 0
    setting.beat("node-0", LATER)
    assert await setting.looks(1) == 0


async def test_a_lease_that_cannot_be_read_harms_nobody() -> None:
    setting = Setting(1)
    setting.now += 1000.0
    setting.leases["numazones-exporter-node-0"] = {"metadata": {"name": "numazones-exporter-node-0"}}
    assert await setting.looks() == 0


async def test_zones_without_any_lease_are_marked_too() -> None:
    setting = Setting(1)
    setting.state.heartbeats.remove(Heartbeat.from_api(setting.leases.pop("numazones-exporter-node-0")))
    assert await setting.looks(2) == 2
    said = setting.said("node-0-numa-0")
    assert said is not None
    assert said["since"] == "2026-01-31T10:00:00Z"
    assert said["message"].startswith(
        "the exporter on node-0 has no Lease, so the NUMAZone may be out of date"
    )


async def test_kubectl_shows_no_ready_zone_of_a_dead_exporter(tmp_path: Path, kubectl: str) -> None:
    async with closed_loop(tmp_path) as loop:
        specs = [node_kinds.single_numa_node(f"worker-{n}", f"10.0.0.{n}") for n in (1, 2)]
        await loop.start_nodes(specs)
        await loop.start_operator()
        loop.publishers["worker-2"].cancel()

        async def rows() -> dict[str, list[str]]:
            lines = (await run(kubectl, loop, "get", "numazones", "-o", "wide")).splitlines()
            heads = ("NAME", "STATE", "SILENT", "AGE")
            columns = [(lines[0].index(head), head) for head in heads]
            return {
                line.split()[0]: [(line[at:].split("  ")[0]).strip() for at, _ in columns]
                for line in lines[1:]
            }

        assert {tuple(row[1:3]) for row in (await rows()).values()} == {("", "")}
        manager = "numazones-exporter"
        await loop.client.apply(
            LEASES,
            lease("worker-2", LATER, seconds=1),
            field_manager=manager,
            namespace=OPTIONS.exporter_namespace,
        )

        async def shown(worker: str, state: str) -> bool:
            return {row[1] for name, row in (await rows()).items() if name.startswith(worker)} == {state}

        await eventually(lambda: shown("worker-2", "Silent"))
        found = await rows()
        assert all(row[2] for name, row in found.items() if name.startswith("worker-2")), "the sign of age"
        assert await shown("worker-1", "")
        told = json.loads(
            await run(kubectl, loop, "get", "nz", "worker-2-numa-0", "-o=json", "--show-managed-fields")
        )
        owners = {
            owner["manager"]: owner["fieldsV1"]["f:status"]
            for owner in told["metadata"]["managedFields"]
            if owner.get("subresource") == "status"
        }
        assert owners["numazones-operator"].keys() == {"f:silence"}
        assert "f:silence" not in owners["numazones-exporter"]
        await loop.client.apply(
            LEASES,
            lease("worker-2", "2026-01-31T12:00:00.000000Z"),
            field_manager=manager,
            namespace=OPTIONS.exporter_namespace,
        )
        await eventually(lambda: shown("worker-2", ""))
