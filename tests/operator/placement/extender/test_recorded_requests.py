"""Every request that a real kube-scheduler sent is answered, over HTTP, in that scheduler's own types.

The types below are those of KS ``extender/v1``: what Go would not decode into them fails here. What the
scheduler would decode, and then do harm with, is checked beside (specs/scheduler-extender.md, section 2).
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from numazones_operator.placement.extender.metrics import ExtenderMetrics
from numazones_operator.placement.extender.server import ExtenderServer
from tests.operator.placement.extender.cluster import Cluster

KEPT = Path(__file__).parents[3] / "data" / "scheduler-extender"


class FilterResult(msgspec.Struct, forbid_unknown_fields=True):
    Nodes: dict[str, Any] | None
    NodeNames: list[str]
    FailedNodes: dict[str, str]
    FailedAndUnresolvableNodes: dict[str, str]
    Error: str


class HostPriority(msgspec.Struct, forbid_unknown_fields=True):
    Host: str
    Score: int


class MetaPod(msgspec.Struct, forbid_unknown_fields=True):
    UID: str


class MetaVictims(msgspec.Struct, forbid_unknown_fields=True):
    Pods: list[MetaPod]
    NumPDBViolations: int


class PreemptionResult(msgspec.Struct, forbid_unknown_fields=True):
    NodeNameToMetaVictims: dict[str, MetaVictims]


class BindingResult(msgspec.Struct, forbid_unknown_fields=True):
    Error: str


def recordings(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def requests(path: Path) -> Iterator[tuple[str, dict[str, str], dict[str, Any]]]:
    """The verb, the headers and the body of each request of a recording.

    Long lists are cut in the recordings, and end in a text that says so; that text is left out.
    """
    for line in path.read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "request":
            nodes = record["body"].get("Nodes")
            if nodes is not None:
                nodes["items"] = [item for item in nodes["items"] if isinstance(item, dict)]
            yield record["path"].rpartition("/")[2], record["headers"], record["body"]


@asynccontextmanager
async def serving(cluster: Cluster) -> AsyncIterator[str]:
    server = ExtenderServer(cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()))
    async with server.serve("127.0.0.1:0") as port:
        yield f"http://127.0.0.1:{port}"


def check_filter(body: dict[str, Any], answer: bytes) -> None:
    result = msgspec.json.decode(answer, type=FilterResult)
    whole = [node["metadata"]["name"] for node in (body["Nodes"] or {"items": []})["items"]]
    named = whole if body["NodeNames"] is None else body["NodeNames"]
    assert result.Error == ""
    assert len(set(result.NodeNames)) == len(result.NodeNames)
    assert set(result.NodeNames) | set(result.FailedAndUnresolvableNodes) == set(named)
    assert not set(result.NodeNames) & set(result.FailedAndUnresolvableNodes)
    assert result.FailedNodes == {}
    if body["NodeNames"] is None:
        assert result.Nodes is not None
        assert [node["metadata"]["name"] for node in result.Nodes["items"]] == result.NodeNames


def check_prioritize(body: dict[str, Any], answer: bytes) -> None:
    result = msgspec.json.decode(answer, type=list[HostPriority])
    whole = [node["metadata"]["name"] for node in (body["Nodes"] or {"items": []})["items"]]
    named = whole if body["NodeNames"] is None else body["NodeNames"]
    hosts = [item.Host for item in result]
    assert len(set(hosts)) == len(hosts)  # the scores of a node that is named twice would add up
    assert set(hosts) <= set(named)
    assert all(0 < item.Score <= 10 for item in result)


def check_preempt(body: dict[str, Any], answer: bytes) -> None:
    result = msgspec.json.decode(answer, type=PreemptionResult)
    offered = body["NodeNameToVictims"] or body["NodeNameToMetaVictims"] or {}
    assert result.NodeNameToMetaVictims.keys() <= offered.keys()
    assert all(victims.Pods for victims in result.NodeNameToMetaVictims.values())


def check_bind(cluster: Cluster, body: dict[str, Any], answer: bytes) -> None:
    result = msgspec.json.decode(answer, type=BindingResult)
    pod = cluster.server.pods[f"{body['PodNamespace']}/{body['PodName']}"]
    assert (result.Error == "") == (pod["spec"].get("nodeName") == body["Node"])


async def replay(path: Path) -> int:
    """Send the requests of a recording one after the other; return how many there were."""
    cluster = Cluster("n1", "n2", "n3", "n4", "n5")
    checks = {"filter": check_filter, "prioritize": check_prioritize, "preempt": check_preempt}
    sent = list(requests(path))
    async with serving(cluster) as url, aiohttp.ClientSession() as session:
        for verb, headers, body in sent:
            if "Pod" in body:
                metadata = body["Pod"]["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                cluster.server.pods.setdefault(key, json.loads(json.dumps(body["Pod"])))
            told = {name: value for name, value in headers.items() if name not in ("Content-Length", "Host")}
            async with session.post(f"{url}/{verb}", data=json.dumps(body), headers=told) as answer:
                content = await answer.read()
                assert answer.status == 200, content
            if verb == "bind":
                check_bind(cluster, body, content)
            else:
                checks[verb](body, content)
    return len(sent)


@pytest.mark.parametrize("path", recordings(KEPT), ids=lambda path: path.stem)
async def test_kept_recordings_are_answered_as_kube_scheduler_demands(path: Path) -> None:
    assert await replay(path) > 0


async def test_all_recordings_are_answered_as_kube_scheduler_demands(shared: Path) -> None:
    found = recordings(shared / "recordings" / "scheduler-extender")
    assert sum([await replay(path) for path in found]) > 250
