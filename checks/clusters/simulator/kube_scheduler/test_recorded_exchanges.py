"""The simulated scheduler against recordings of the real one, from the extender's side.

An extender gives the answers that were recorded; the scheduler must send the requests that were recorded, and
say in PodScheduled, word for word, what the real one said. Of nodes that are equal the real scheduler takes
one at random, and it lists nodes in any order; UIDs and versions are those of another API server.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from numazones_client import Client
from numazones_client.resources import NODES, PODS, PRIORITY_CLASSES
from numazones_simulator.background import background
from numazones_simulator.control_plane import control_plane
from numazones_simulator.kube_scheduler.configuration import Configuration
from numazones_simulator.kube_scheduler.scheduler import KubeScheduler
from numazones_simulator.mirror import mirror
from tests.places import DATA

KEPT = DATA / "scheduler-extender"
RECORDED = "http://127.0.0.1:8888"
NAMES = ("n1", "n2", "n3", "n4", "n5")
LOW, IMPORTANT = "low", "toppest"
PRIORITIES = {LOW: 100, "high": 1000, IMPORTANT: 5000}

Body = dict[str, Any]
Bound = Mapping[str, tuple[str, tuple[int, ...]]]
"""Node → priority class and CPUs of the pods that are on it."""

ON_THREE: Bound = {
    **dict.fromkeys(("n1", "n2", "n3"), (LOW, (4, 4))),
    **dict.fromkeys(("n4", "n5"), (IMPORTANT, (8,))),
}
CASES: Mapping[str, Bound] = {
    "plain": {},
    "failed-all": {},
    "failed-mixed": {"n1": ("", (8,))},
    "failed-unresolvable": {},
    "filter-201": {},
    "filter-500": {},
    "filter-badjson": {},
    "filter-duplicates": {},
    "filter-error": {},
    "filter-omitted-nodenames": {},
    "filter-timeout-1s": {},
    "prioritize-500": {},
    "prioritize-float": {},
    "prioritize-out-of-range": {},
    "prioritize-partial": {},
    "bind-error": {},
    "ignorable-filter-error": {},
    "ignorable-filter-reject": {},
    "nocache-names": {},
    "nocache-preempt": dict.fromkeys(NAMES, (LOW, (8,))),
    "preempt-500": ON_THREE,
    "preempt-accepted": ON_THREE,
    "preempt-empty-pods": ON_THREE,
    "preempt-numa-quiet": dict.fromkeys(NAMES, (LOW, (1,))),
    "preempt-unknown-uid": ON_THREE,
    "preempt-vetoed": ON_THREE,
    "preempt-vetoed-but-one": ON_THREE,
}


class Recording:
    """Requests, answers and messages of one case."""

    def __init__(self, path: Path) -> None:
        records = [json.loads(line) for line in path.read_text().splitlines()]
        (case,) = (record for record in records if record["kind"] == "case")
        self.config = case["schedulerConfig"]
        answers = {record["id"]: record for record in records if record["kind"] == "response"}
        self.exchanges = [
            (record, answers[record["id"]])
            for record in records
            if record["kind"] == "request" and record["id"] in answers
        ]
        self.pods: dict[str, Body] = {}
        """The pods that were asked about, as they were first sent."""
        for request, _ in self.exchanges:
            if pod := request["body"].get("Pod"):
                self.pods.setdefault(pod["metadata"]["name"], pod)
        self.said = _distinct(
            (record["PodScheduled"]["reason"], record["PodScheduled"]["message"])
            for record in records
            if record["kind"] == "api-pod" and (record.get("PodScheduled") or {}).get("message")
        )
        self.bound = {
            record["name"]
            for record in records
            if record["kind"] == "api-pod" and record["nodeName"] and record["name"] in self.pods
        }


class Extender:
    """Gives the recorded answers, and keeps how a request differs from the recorded one."""

    def __init__(self, recording: Recording, client: Client) -> None:
        self.left = list(recording.exchanges)
        self.client = client
        self.differences: list[Any] = []
        self.done = asyncio.Event()
        self.best: set[str] = set()
        """Nodes among which the scheduler may bind."""

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json()
        if not self.left:
            return web.Response(status=503)
        recorded, response = self.left.pop(0)
        self.compare(recorded, request, body)
        if not self.left:
            self.done.set()
        await asyncio.sleep(response["took"] if response["took"] > 1 else 0)
        if request.path == "/bind" and not (response["body"] or {}).get("Error"):
            await self.bind(body)
        content = response["body"]
        if isinstance(content, dict) and "raw" in content:
            return web.Response(status=response["status"], text=content["raw"])
        return web.json_response(self.translated(recorded["body"], body, content), status=response["status"])

    def compare(self, recorded: Body, request: web.Request, body: Body) -> None:
        self.check(recorded["path"], request.path)
        for name in ("User-Agent", "Content-Type", "Accept-Encoding"):
            self.check(recorded["headers"][name], request.headers.get(name))
        self.check(sorted(name for name in recorded["headers"]), sorted(request.headers))
        self.check(_shape(recorded["body"]), _shape(body))
        if recorded["path"] == "/bind" and self.best:
            self.check(True, body["Node"] in self.best)
        if recorded["path"] == "/filter":
            self.best = set()

    def check(self, recorded: object, sent: object) -> None:
        if recorded != sent:
            self.differences.append((recorded, sent))

    def translated(self, recorded: Body, sent: Body, answer: Any) -> Any:
        """Return the recorded answer in terms of this API server's names and UIDs."""
        text = json.dumps(answer)
        for old, new in zip(_identities(recorded), _identities(sent), strict=True):
            text = text.replace(json.dumps(old), json.dumps(new))
        answer = json.loads(text)
        if isinstance(answer, list):
            points: dict[str, float] = {}
            for item in answer:
                host, score = (value for _, value in sorted((k.lower(), v) for k, v in item.items()))
                points[host] = points.get(host, 0) + score
            if all(isinstance(score, int) for score in points.values()):
                most = max(points.get(name, 0) for name in NAMES)
                self.best = {name for name in NAMES if points.get(name, 0) == most}
        return answer

    async def bind(self, body: Body) -> None:
        binding = {
            "metadata": {"name": body["PodName"], "uid": body["PodUID"]},
            "target": {"kind": "Node", "name": body["Node"]},
        }
        await self.client.create(PODS, binding, namespace=body["PodNamespace"], subresource="binding")


def _distinct(items: Any) -> list[Any]:
    return list(dict.fromkeys(items))


def _shape(body: Body) -> Any:
    """Return the part of a request that does not depend on UIDs, versions, or a choice among equal nodes."""
    pod = body.get("Pod")
    names = body.get("NodeNames")
    nodes = body.get("Nodes")
    victims = body.get("NodeNameToVictims")
    return {
        "keys": list(body),
        "pod": pod and (pod["metadata"]["name"], sorted(pod), _spec(pod)),
        "names": names if names is None else len(names) if len(names) == 1 else sorted(names),
        "nodes": nodes
        and (len(nodes["items"]), nodes["metadata"], {key for node in nodes["items"] for key in node}),
        "victims": victims and {node: [_spec(pod) for pod in one["Pods"]] for node, one in victims.items()},
        "meta": (body.get("NodeNameToMetaVictims") or {})
        and {
            node: ([sorted(pod) for pod in one["Pods"]], one["NumPDBViolations"])
            for node, one in body["NodeNameToMetaVictims"].items()
        },
        "bind": body.get("PodName") and (body["PodName"], body["PodNamespace"]),
    }


def _spec(pod: Body) -> Any:
    """Return what both API servers write into a spec."""
    spec = pod["spec"]
    return spec["containers"][0]["resources"], spec.get("priority"), spec["schedulerName"]


def _identities(body: Body) -> list[str]:
    """UIDs of victims, and the name of the nominated node, in the order of nodes."""
    victims = body.get("NodeNameToMetaVictims") or body.get("NodeNameToVictims") or {}
    found = [
        pod.get("UID") or pod["metadata"]["uid"] for _, one in sorted(victims.items()) for pod in one["Pods"]
    ]
    names = body.get("NodeNames") or [
        node["metadata"]["name"] for node in (body.get("Nodes") or {}).get("items", ())
    ]
    return found + (names if len(names) == 1 else [])


@asynccontextmanager
async def serving(extender: Extender) -> AsyncIterator[str]:
    application = web.Application()
    application.router.add_post("/{verb}", extender.answer)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def prepare(client: Client, bound: Bound) -> None:
    for name, value in PRIORITIES.items():
        await client.create(PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value})
    amounts = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    for name in NAMES:
        await client.create(
            NODES, {"metadata": {"name": name}, "spec": {}, "status": {"allocatable": amounts}}
        )
        priority, sizes = bound.get(name, ("", ()))
        for number, cpus in enumerate(sizes):
            amount = {"cpu": str(cpus), "memory": "1Gi"}
            container = {"name": "c", "image": "i", "resources": {"limits": amount, "requests": amount}}
            spec = {
                "nodeName": name,
                "priorityClassName": priority,
                "schedulerName": "numa-scheduler",
                "terminationGracePeriodSeconds": 0,
                "containers": [container],
            }
            body = {"metadata": {"name": f"{name}-{number}", "namespace": "default"}, "spec": spec}
            await client.create(PODS, body, namespace="default")


async def replay(path: Path, bound: Bound, directory: Path) -> None:
    recording = Recording(path)
    async with control_plane(directory) as plane:
        await prepare(plane.client, bound)
        extender = Extender(recording, plane.client)
        async with serving(extender) as url:
            text = json.dumps(recording.config).replace(RECORDED, url)
            config = Configuration.model_validate(json.loads(text))
            said: list[tuple[str, str]] = []
            placed: set[str] = set()
            moved = asyncio.Event()

            def look(_: Body | None, pod: Body | None) -> None:
                if pod is None or pod["metadata"]["name"] not in recording.pods:
                    return
                said.extend(
                    (one["reason"], one["message"].replace(url, RECORDED))
                    for one in (pod.get("status") or {}).get("conditions") or ()
                    if one.get("message")
                )
                if pod["spec"].get("nodeName"):
                    placed.add(pod["metadata"]["name"])
                moved.set()

            watched = mirror(plane.client, PODS, look)
            async with background(KubeScheduler(plane.client, config).run(), watched.reflector.run()):
                for name, pod in recording.pods.items():
                    fresh = {"metadata": {"name": name, "namespace": "default"}, "spec": {**pod["spec"]}}
                    del fresh["spec"]["priority"]
                    await plane.client.create(PODS, fresh, namespace="default")
                try:
                    async with asyncio.timeout(120):
                        await extender.done.wait()
                        while not (set(recording.said) <= set(said) and recording.bound <= placed):
                            moved.clear()
                            await moved.wait()
                except TimeoutError:
                    pytest.fail(
                        f"{len(extender.left)} exchanges left; said {said}; placed {placed}; "
                        f"differences {extender.differences}"
                    )
    assert extender.differences == []
    assert _distinct(said) == recording.said


def kept() -> list[str]:
    return sorted(path.stem for path in KEPT.glob("*.jsonl") if path.stem in CASES)


@pytest.mark.parametrize("case", kept())
async def test_kept_recordings_are_repeated_by_the_simulated_scheduler(case: str, tmp_path: Path) -> None:
    await replay(KEPT / f"{case}.jsonl", CASES[case], tmp_path)


@pytest.mark.parametrize("case", sorted(CASES))
async def test_recordings_are_repeated_by_the_simulated_scheduler(
    case: str, shared: Path, tmp_path: Path
) -> None:
    await replay(shared / "recordings" / "scheduler-extender" / f"{case}.jsonl", CASES[case], tmp_path)
