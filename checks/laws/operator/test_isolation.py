"""An exception in any step about one object leaves every answer about the others as it was."""

import asyncio
import json
from typing import Any

from prometheus_client import CollectorRegistry

from numazones.cluster.waiting import GATE
from numazones_client import Decoder, Reflector, by_uid
from numazones_client.resources import PODS
from numazones_operator.faults import of_pod
from numazones_operator.prevention.extender.metrics import ExtenderMetrics
from numazones_operator.prevention.extender.server import ExtenderServer
from tests.operator.closed_loop import pod_body
from tests.operator.offline_pipeline import RUNNING
from tests.operator.prevention.extender.cluster import Cluster
from tests.operator.prevention.offline_gates import offline_gates
from tests.operator.steps_of_a_pod import Injected, called_about, raising

MARK = "poison"
SEAMS = {
    "AdmissionGates._release",
    "AdmissionGates._walk",
    "CurrentVerdicts.of",
    "LiveForecasts._changes_isolated",
    "LiveForecasts._renew_isolated",
}
"""What does nothing but take what others raise."""


class Request:
    """A request to the extender, as aiohttp hands it over."""

    def __init__(self, body: Any) -> None:
        self._body = json.dumps(body).encode()
        self.headers: dict[str, str] = {}
        self.content = self

    async def iter_any(self) -> Any:
        yield self._body


class Scenario:
    """Three pods that wait, are released, asked about, bound, run and end; one of them is marked."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.cluster = Cluster("a", "b")
        self.pipeline = self.cluster.offline.pipeline
        faults = self.pipeline.faults
        faults._count = lambda _kind, error: self.problems.append(error)
        self.pipeline.synced = True
        self.decoder = Decoder(self.cluster.state.sharing.pod, key=by_uid)
        self.reflector = Reflector(
            None,  # type: ignore[arg-type]
            PODS,
            decoder=self.decoder,
            table=self.cluster.state.pods,
            unreadable=lambda found: self.problems.append(found.error),
            failed=lambda pod, error: (faults.take(of_pod(pod), error), None)[1],
        )
        self.seen: dict[str, Any] = {}

    def event(self, kind: str, body: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": {"kind": "Pod", "apiVersion": "v1", **body}})
        self.reflector._handle(self.decoder.event(line.encode()))

    def body(self, name: str, cpu: int, **spec: Any) -> dict[str, Any]:
        body = pod_body(name, cpu=cpu, **spec)
        body["metadata"] |= {"uid": f"uid-{name}", "creationTimestamp": "2026-01-31T08:00:00Z"}
        return body | {"status": {"phase": "Pending"}}

    async def run(self) -> dict[str, Any]:
        publishing = asyncio.create_task(self.pipeline.publisher.run())
        await asyncio.sleep(0)
        bodies = {name: self.body(name, cpu) for name, cpu in ((MARK, 3), ("good", 5), ("other", 7))}
        for name, body in bodies.items():
            self.cluster.server.pods[f"default/{name}"] = body
            gated = {**body, "spec": {**body["spec"], "schedulingGates": [{"name": GATE}]}}
            self.event("ADDED", gated)
        await self.pipeline.renew()
        await self.pipeline.publisher.wait_until_written(0.5)
        self.seen["published"] = self._verdicts()
        await offline_gates(self.cluster).release()
        self.seen["released"] = sorted(name for name, _ in self.cluster.server.patches if name != MARK)
        server = ExtenderServer(self.cluster.extender, metrics=ExtenderMetrics(CollectorRegistry()))
        for name, body in bodies.items():
            for verb in ("filter", "prioritize"):
                answer = await server._answer(
                    verb,
                    getattr(self.cluster.extender, verb),
                    Request({"Pod": body, "Nodes": None, "NodeNames": ["a", "b"]}),  # type: ignore[arg-type]
                )
                assert answer.status in {200, 400}
                if name != MARK and verb == "filter":
                    self.seen[f"filter {name}"] = answer.body
        for body in bodies.values():
            self.event("MODIFIED", {**body, "spec": {**body["spec"], "nodeName": "a"}})
        await self.pipeline.renew()
        for body in bodies.values():
            spec = {**body["spec"], "nodeName": "a"}
            self.event("MODIFIED", {**body, "spec": spec, "status": RUNNING})
        self.pipeline.explain_misses()
        self.cluster.offline.let_pass(1.0)
        node = self.cluster.state.node("a")
        self.seen["node"] = node is not None and {"good", "other"} <= {pod.name for pod in node.pods.values()}
        self.event("DELETED", {**bodies[MARK], "spec": {**bodies[MARK]["spec"], "nodeName": "a"}})
        self.event("ADDED", self.body("late", 2))
        await self.pipeline.renew()
        await self.pipeline.publisher.wait_until_written(0.5)
        self.seen["late"] = self._verdicts().get("late")
        assert not publishing.done()
        publishing.cancel()
        await asyncio.wait((publishing,))
        return self.seen

    def _verdicts(self) -> dict[str, Any]:
        objects = self.cluster.offline.writes.objects
        found = {name: (body.get("status") or {}).get("verdict") for name, body in objects.items()}
        return {name: verdict for name, verdict in found.items() if name != MARK}


def test_exception_in_any_step_about_a_pod_ends_nothing_else() -> None:
    usual = asyncio.run(Scenario().run())
    assert usual["published"] == {"good": "Admissible", "other": "Admissible"}
    assert usual["released"] == ["good", "other"]
    steps = called_about(MARK, lambda: asyncio.run(Scenario().run()))
    assert len(steps) > 100
    wrong: dict[str, str] = {}
    for step in steps:
        if step.__qualname__ in SEAMS:
            continue
        scenario = Scenario()
        name = f"{step.__module__}.{step.__qualname__}"
        with raising(step, MARK) as struck:
            try:
                seen = asyncio.run(scenario.run())
            except Exception as error:  # noqa: BLE001 - all of them are told together
                wrong[name] = repr(error)
                continue
        if seen != usual:
            wrong[name] = str([key for key in usual if seen.get(key) != usual[key]])
        elif struck and Injected.__name__ not in scenario.problems:
            wrong[name] = f"nothing tells of it: {scenario.problems}"
    assert not wrong, "\n".join(f"{name}: {problem}" for name, problem in wrong.items())
