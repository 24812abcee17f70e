"""Every request that a real kube-scheduler sent is answered, over HTTP, in that scheduler's own types.

The types below are those of KS ``extender/v1``: what Go would not decode into them fails here. What the
scheduler would decode, and then do harm with, is checked beside (specs/scheduler-extender.md, section 2).
"""

import json
import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from prometheus_client import CollectorRegistry

from numazones_operator.prevention.extender.certificates import Certificates
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.server import ExtenderServer
from tests.operator.prevention.extender.authority import Authority
from tests.operator.prevention.extender.cluster import Cluster
from tests.places import DATA

KEPT = DATA / "scheduler-extender"


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
async def serving(cluster: Cluster, certificates: Certificates | None) -> AsyncIterator[str]:
    server = ExtenderServer(
        cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()), certificates=certificates
    )
    async with server.serve("127.0.0.1:0") as port:
        yield f"{'https' if certificates else 'http'}://127.0.0.1:{port}"


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
    for node, victims in result.NodeNameToMetaVictims.items():
        assert bool(victims.Pods) == bool(offered[node]["Pods"])


def check_bind(cluster: Cluster, body: dict[str, Any], answer: bytes) -> None:
    result = msgspec.json.decode(answer, type=BindingResult)
    pod = cluster.server.pods[f"{body['PodNamespace']}/{body['PodName']}"]
    assert (result.Error == "") == (pod["spec"].get("nodeName") == body["Node"])


async def replay(
    path: Path, certificates: Certificates | None = None, context: ssl.SSLContext | None = None
) -> int:
    """Send the requests of a recording one after the other; return how many there were.

    ``certificates``: the server's, and ``context``: the scheduler's, where they speak TLS.
    """
    cluster = Cluster("n1", "n2", "n3", "n4", "n5")
    checks = {"filter": check_filter, "prioritize": check_prioritize, "preempt": check_preempt}
    sent = list(requests(path))
    async with serving(cluster, certificates) as url, aiohttp.ClientSession() as session:
        for verb, headers, body in sent:
            if "Pod" in body:
                metadata = body["Pod"]["metadata"]
                key = f"{metadata['namespace']}/{metadata['name']}"
                cluster.server.pods.setdefault(key, json.loads(json.dumps(body["Pod"])))
            told = {name: value for name, value in headers.items() if name not in ("Content-Length", "Host")}
            async with session.post(
                f"{url}/{verb}", data=json.dumps(body), headers=told, ssl=context or True
            ) as answer:
                content = await answer.read()
                assert answer.status == 200, content
            if verb == "bind":
                check_bind(cluster, body, content)
            else:
                checks[verb](body, content)
    return len(sent)


WITHOUT_REQUESTS = frozenset({"throughput-50", "throughput-5000", "tls-no-client-cert"})
"""Recordings of figures, and of a scheduler that gets no connection."""
OVER_TLS = frozenset({"tls-client-cert", "tls-servername"})


@pytest.mark.parametrize("path", recordings(KEPT), ids=lambda path: path.stem)
async def test_kept_recordings_are_answered_as_kube_scheduler_demands(path: Path) -> None:
    assert (await replay(path) == 0) == (path.stem in WITHOUT_REQUESTS)


async def test_all_recordings_are_answered_as_kube_scheduler_demands(shared: Path) -> None:
    folder = shared / "recordings" / "scheduler-extender"
    found = recordings(folder)
    assert {path.name for path in folder.iterdir()} == {"README.md", *(path.name for path in found)}
    sent = {path.stem: await replay(path) for path in found}
    assert sent == {path.stem: lines_of(path, "request") for path in found}
    assert {name for name, number in sent.items() if not number} == WITHOUT_REQUESTS & sent.keys()


def lines_of(path: Path, kind: str) -> int:
    """Return how many records of a kind a recording has."""
    return sum(json.loads(line)["kind"] == kind for line in path.read_text().splitlines())


@pytest.mark.parametrize("name", sorted(OVER_TLS))
async def test_tls_requests_of_a_known_scheduler_are_answered(name: str, tmp_path: Path) -> None:
    authority = Authority.make("schedulers")
    ca = authority.write(tmp_path)
    certificates = Certificates(*authority.issue(tmp_path, "extender"), ca)
    context = ssl.create_default_context(cafile=str(ca))
    context.load_cert_chain(*authority.issue(tmp_path, "scheduler"))
    path = KEPT / f"{name}.jsonl"
    assert await replay(path, certificates, context) == lines_of(path, "request")


async def test_scheduler_without_a_certificate_gets_no_answer_and_no_binding(tmp_path: Path) -> None:
    """A recording shows what kube-scheduler then says: its connection is reset."""
    path = KEPT / "tls-no-client-cert.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    said = {record["note"] for record in records if record["kind"] == "api-event"}
    assert all("/filter" in one and "reset by peer" in one for one in said)
    authority = Authority.make("schedulers")
    ca = authority.write(tmp_path)
    certificates = Certificates(*authority.issue(tmp_path, "extender"), ca)
    # Without a CA to check by, kube-scheduler trusts every server (enableHTTPS).
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with pytest.raises(aiohttp.ClientError):
        await replay(KEPT / "plain.jsonl", certificates, context)
