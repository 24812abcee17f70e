"""The load of an idle operator on an API server, and its log while there is none."""

import logging
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from checks.clusters.operator.closed_loop import OPTIONS, Loop, closed_loop, metrics
from numazones_apiserver.requests import HTTPRequest
from numazones_client.resources import (
    DEFINITIONS,
    LEASES,
    NAMESPACES,
    NODE_RESOURCE_TOPOLOGIES,
    REBALANCE_POLICIES,
    REBALANCE_RECOMMENDATIONS,
)
from numazones_operator.process import LEASE_NAME
from numazones_simulator import node_kinds
from tests.waiting import eventually

RENEWALS = 20


class Requests:
    """Counts the operators' requests, by method and path; watches apart, those of one object by its path."""

    def __init__(self, loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
        self.counted: Counter[tuple[str, str]] = Counter()
        authenticate = loop.server._authenticate

        def note(request: HTTPRequest) -> None:
            if request.headers["User-Agent"].startswith("numazones-operator"):
                method = "WATCH" if "watch" in request.query else request.method
                _, _, name = request.query.get("fieldSelector", "").partition("metadata.name=")
                self.counted[method, f"{request.path}/{name}" if name else request.path] += 1
            authenticate(request)

        monkeypatch.setattr(loop.server, "_authenticate", note)

    async def of_kopf(self) -> None:
        """Wait until kopf follows all that people write; definitions, which reflectors watch as well, too."""
        watched = (NAMESPACES, DEFINITIONS, DEFINITIONS, REBALANCE_POLICIES, REBALANCE_RECOMMENDATIONS)
        wanted = Counter(("WATCH", resource.path()) for resource in watched)
        await eventually(lambda: wanted <= self.counted, what="kopf follows what people write")

    def of(self, method: str) -> dict[str, int]:
        """Return the number of requests with a method, by path."""
        return {path: number for (used, path), number in self.counted.items() if used == method}


async def test_idle_operator_only_renews_the_leaders_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two replicas, and kinds that the cluster has not: what comes is watched."""
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("n1", "10.0.0.1")])
        lease: dict[str, Any] = {"leader_elect": True, "leader_elect_retry_period": 0.05}
        requests = Requests(loop, monkeypatch)
        await loop.start_operator(rebalance=True, **lease)
        await requests.of_kopf()
        requests.counted.clear()
        await loop.start_operator(leads=False, rebalance=True, **lease)
        held = LEASES.path(LEASE_NAME, namespace=OPTIONS.namespace)
        await eventually(lambda: held in requests.of("WATCH"), what="the second knows who leads")
        requests.counted.clear()
        await eventually(lambda: sum(requests.of("PUT").values()) >= RENEWALS)
        assert requests.of("GET") == {}
        assert {method for method, _ in requests.counted} <= {"PUT", "WATCH"}


async def test_kind_is_mirrored_as_soon_as_its_definition_is_installed(tmp_path: Path) -> None:
    async with closed_loop(tmp_path) as loop:
        operator = await loop.start_operator(leader_elect=False)
        name = NODE_RESOURCE_TOPOLOGIES.full_name
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1alpha2", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        names = {
            "plural": "noderesourcetopologies",
            "singular": "noderesourcetopology",
            "kind": "NodeResourceTopology",
            "listKind": "NodeResourceTopologyList",
        }
        body = {
            "apiVersion": DEFINITIONS.api_version,
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": name,
                "annotations": {"api-approved.kubernetes.io": "https://example.com/approved"},
            },
            "spec": {
                "group": NODE_RESOURCE_TOPOLOGIES.group,
                "scope": "Cluster",
                "names": names,
                "versions": [version],
            },
        }
        await loop.client.create(DEFINITIONS, body)
        topology = {
            "apiVersion": NODE_RESOURCE_TOPOLOGIES.api_version,
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n1"},
            "zones": [],
        }
        await loop.client.create(NODE_RESOURCE_TOPOLOGIES, topology)
        await eventually(lambda: len(operator.pipeline.state.topologies) == 1)


async def test_api_server_outage_and_return_are_each_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with closed_loop(tmp_path) as loop:
        lease: dict[str, Any] = {"leader_elect": True, "leader_elect_retry_period": 0.05}
        requests = Requests(loop, monkeypatch)
        operator = await loop.start_operator(rebalance=True, **lease)
        await requests.of_kopf()
        caplog.clear()
        await loop.server.stop()

        async def every_watch_has_tried_again() -> bool:
            counted = await metrics(operator)
            failures = [
                number
                for series, number in counted.items()
                if series.startswith("numazones_operator_watch_restarts_total") and "unreachable" in series
            ]
            return len(failures) >= len(operator.reflectors) - 4 and min(failures) >= 2  # 4: not served here

        await eventually(every_watch_has_tried_again)
        await loop.server.start()
        await eventually(lambda: any("responds again" in one.getMessage() for one in caplog.records))
        await eventually(lambda: all(not reflector.problem for reflector in operator.reflectors))
        said = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert len(said) == 2, said
        assert said[0].startswith("the API server does not respond; requests are retried until it does: ")
        assert said[1].startswith("the API server responds again, after ")
