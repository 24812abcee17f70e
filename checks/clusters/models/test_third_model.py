"""A placement model is a folder and an entry point: one that nobody knows serves on every surface.

The model lies in ``third``: its entry point is found once that folder is on Python's path.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from checks.clusters.operator.closed_loop import Loop, closed_loop, metrics
from numazones.cluster.cluster import ClusterPod
from numazones.placement import models
from numazones.rebalance.filter import eviction_cost
from numazones_client import Client, Resource
from numazones_client.resources import NAMESPACES, NODES, NUMAZONES, PODS
from numazones_operator.process import Operator
from numazones_simulator import node_kinds, placement_models
from numazones_simulator.kubelet import agent
from numazones_simulator.node_kinds import MODEL_LABEL
from tests.kubectl.small_cluster import written
from tests.operator.pods import pod_body
from tests.places import ROOT
from tests.waiting import eventually

FOLDER = ROOT / "tests" / "models" / "third"
PROGRAM = Path(sys.executable).with_name("kubectl-numazones")
PINNED: dict[str, Any] = {
    "nodeSelector": {MODEL_LABEL: "pinned"},
    "tolerations": [{"key": MODEL_LABEL, "operator": "Exists"}],
    "terminationGracePeriodSeconds": 0,
}
GIVEN = {"one": 8, "two": 4, "three": 12, "four": 12, "five": 12}
"""Pod → CPUs; each of four NUMA nodes has 15, and is left with 3."""
FULL = 6
"""So many random pods run at a time: often more than its NUMA nodes have CPUs for."""
TOO_MANY = "needs {} CPUs of one NUMA node; the most free ones are 3"
OUTCOME = 'numazones_prediction_outcomes_total{{actual="{}",predicted="{}"}}'
RIGHT = 'numazones_prediction_accuracy_total{accuracy="right",model="pinned"}'

SHOW_LIVE = """
import asyncio, sys
from pathlib import Path
from tests.kubectl.live_screen import shown, view

async def show() -> None:
    app = view(Path(sys.argv[1]))
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        print(shown(app))

asyncio.run(show())
"""


@pytest.fixture(scope="module")
def installed() -> Iterator[None]:
    """Have the model found, here and in programs that are started."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(FOLDER)
        patch.setenv("PYTHONPATH", str(FOLDER))
        patch.setattr(agent, "_RETRY", 0.2)
        forget_models()
        yield
    forget_models()


def forget_models() -> None:
    """Let installed models and their simulations be looked for again."""
    for function in (*vars(models).values(), *vars(placement_models).values()):
        if hasattr(function, "cache_clear"):
            function.cache_clear()


@dataclass(frozen=True)
class Seen:
    """Observations of a cluster with one node of the third model and one of a kubelet."""

    dump: Path
    predictions: dict[str, dict[str, Any]]
    """Name of a pod → its AdmissionPrediction's status."""
    metrics: dict[str, float]
    page: dict[str, Any]
    """Documents of the live page."""
    live_top: str
    findings: dict[str, Any]
    """What doctor found."""


@pytest.fixture(scope="module")
def seen(installed: None, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return asyncio.run(observe(tmp_path_factory.mktemp("third")))


async def observe(folder: Path) -> Seen:
    (pinned,) = placement_models.simulations()["pinned"].node_kinds
    async with closed_loop(folder) as loop:
        await loop.start_nodes(node_kinds.mixed(2, kinds=(pinned, node_kinds.single_numa_node)))
        loop.start_scheduler()
        operator = await loop.start_operator(page_address="127.0.0.1:0")
        for number, (name, cpus) in enumerate(GIVEN.items(), start=1):
            await loop.create_pod(name, cpu=cpus, **PINNED)
            await eventually(lambda number=number: is_verified(operator, number), patience=30, what=name)  # type: ignore[misc]
        await loop.create_pod("late", cpu=12, **PINNED)
        await eventually(lambda: is_verified(operator, len(GIVEN) + 1), patience=30, what="late")
        await loop.create_pod("waiting", cpu=4, schedulingGates=[{"name": "example.com/gate"}], **PINNED)
        await eventually(lambda: is_predicted(loop, "waiting"), what="waiting")
        return Seen(
            dump=written(folder / "dump.json", await dumped(loop.client)),
            predictions=await loop.predictions(),
            metrics=await metrics(operator),
            page=await page_documents(operator.page_port),
            live_top=await asyncio.to_thread(run, "top", "--kubeconfig", loop.kubeconfig),
            findings=json.loads(
                await asyncio.to_thread(run, "doctor", "--kubeconfig", loop.kubeconfig, "-o", "json")
            ),
        )


async def is_verified(operator: Operator, number: int) -> bool:
    """Return whether what was predicted of so many of the model's pods came true."""
    return (await metrics(operator)).get(RIGHT) == number


async def is_predicted(loop: Loop, name: str) -> bool:
    return bool(await loop.verdict(name))


async def dumped(client: Client) -> list[dict[str, Any]]:
    """Return the objects of the cluster, including the model's own."""
    kinds = {kind.kind: Resource.of_kind(kind) for kind in models.model("pinned").objects}
    kinds |= {"Node": NODES, "Pod": PODS, "NUMAZone": NUMAZONES, "Namespace": NAMESPACES}
    return [
        {**body, "kind": kind} for kind, resource in kinds.items() for body in await client.list(resource)
    ]


async def page_documents(port: int) -> dict[str, Any]:
    """Read the live page's documents until both nodes and the waiting pod are among them."""
    found: dict[str, Any] = {}
    async with (
        aiohttp.ClientSession(read_bufsize=1 << 22) as session,
        session.get(f"http://127.0.0.1:{port}/events") as answer,
    ):
        while not found.keys() >= {"node/node-1", "node/node-2", "waiting/default/waiting"}:
            line = (await answer.content.readline()).decode()
            if line.startswith("data: {"):
                found |= json.loads(line.removeprefix("data: "))
    return found


def run(*arguments: object, codes: tuple[int, ...] = (0, 1)) -> str:
    """Run ``kubectl numazones``."""
    done = subprocess.run(
        [str(PROGRAM), *map(str, arguments)],
        env={**os.environ, "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in codes, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """A manifest of a pod for the model's node."""
    amounts = {"cpu": "2", "memory": "1Gi"}
    containers = [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}}
    path = tmp_path / "pod.json"
    path.write_text(json.dumps({**body, "spec": {"containers": containers, **PINNED}}))
    return path


def test_the_operator_predicts_for_it(seen: Seen) -> None:
    waiting = seen.predictions["waiting"]
    assert (waiting["verdict"], waiting["model"]) == ("Inadmissible", "pinned")
    (reason,) = (found for found in waiting["reasons"] if found["source"] == "Pinned")
    assert (reason["reason"], reason["node"], reason["model"]) == ("CreateContainerError", "node-1", "pinned")
    assert reason["sentence"] == f"the pinning agent says: {TOO_MANY.format(4)}"


def test_its_admissions_and_rejections_are_verified_under_its_name(seen: Seen) -> None:
    accuracy = {
        name.split('"')[1]: count
        for name, count in seen.metrics.items()
        if name.startswith("numazones_prediction_accuracy_total") and 'model="pinned"' in name
    }
    assert accuracy == {"right": len(GIVEN) + 1, "race": 0, "stale": 0, "model": 0, "unknown": 0}
    assert seen.metrics[OUTCOME.format("Admitted", "Admissible")] == len(GIVEN)
    assert seen.metrics[OUTCOME.format("CreateContainerError", "Inadmissible")] == 1
    late = seen.predictions["late"]["outcome"]
    assert (late["model"], late["predicted"], late["accuracy"]) == ("pinned", "Inadmissible", "Right")
    assert late["explanation"][-1] == f"rejected: {TOO_MANY.format(12)}"


def test_why_tells_what_it_says(seen: Seen) -> None:
    said = run("why", "waiting", "-f", seen.dump)
    assert said.startswith("default/waiting: its scheduling gate example.com/gate must be removed ")
    assert f"Nodes: the pinning agent says: {TOO_MANY.format(4)}\n" in said
    assert re.search(r"^ +1 +node-1 +Inadmissible +the pinning agent says: ", said, re.MULTILINE)
    said = run("why", "late", "-f", seen.dump)
    assert said.startswith(
        "default/late: is waiting on node-1, where the runtime cannot create a container: "
    )
    said = run("why", "waiting", "--node", "node-1", "-f", seen.dump)
    assert "free CPUs: 3 of NUMA node 0, 3 of NUMA node 1" in said
    assert f"rejected: {TOO_MANY.format(4)}" in said


def test_fit_counts_what_it_admits(seen: Seen, pod: Path) -> None:
    # The scheduler's sum leaves 4 of 64 CPUs beside the pods, the one that waits included.
    said = run("fit", "--pod", pod, "--replicas", "9", "-f", seen.dump)
    assert said.splitlines()[0] == "2 of 9 fit"
    assert [line.split() for line in said.splitlines()[2:4]] == [
        ["node-1", "0", "37-38"],
        ["node-1", "1", "45-46"],
    ]
    assert said.splitlines()[4].startswith("no more fit: ")


def test_top_shows_its_zones_live_and_from_a_dump(seen: Seen) -> None:
    assert run("top", "-f", seen.dump) == seen.live_top
    rows = [line.split() for line in seen.live_top.splitlines() if line.startswith("node-1")]
    assert [(row[1], row[2], row[3], row[5]) for row in rows] == [
        (str(numa), "pinned", "12/15", "3") for numa in range(4)
    ]


def test_who_and_tree_show_who_holds_its_cpus(seen: Seen) -> None:
    held = [line.split() for line in run("who", "node-1", "-f", seen.dump).splitlines()[1:]]
    assert held == [
        ["0", "default/one", "1-7,32", "aligned"],
        ["0", "default/two", "33-36", "aligned"],
        ["1", "default/three", "9-15,40-44", "aligned"],
        ["2", "default/four", "17-23,48-52", "aligned"],
        ["3", "default/five", "25-31,56-60", "aligned"],
    ]
    drawn = run("tree", "node-1", "-f", seen.dump)
    assert drawn.startswith("node-1: the pinning agent\n")
    assert "A default/one: 1-7,32" in drawn


def test_live_shows_its_zones(seen: Seen) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHOW_LIVE, str(seen.dump)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (FOLDER, ROOT)))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "node-1: the pinning agent" in done.stdout
    assert re.search(r"node-1 +3 +█+·+ +15 +3 ", done.stdout)
    assert re.search(r"0 +default/one +1-7,32", done.stdout)
    assert "Stuck pods 1" in done.stdout


def test_page_and_report_draw_it(seen: Seen, tmp_path: Path) -> None:
    node = seen.page["node/node-1"]
    assert node["settings"] == [["Placement", "the pinning agent"]]
    assert [zone["cpus"] for zone in node["zones"]] == [[12, 15]] * 4
    assert {pod["pod"]: pod["cpus"] for pod in node["pods"]}["default/one"] == "1-7,32"
    assert seen.page["waiting/default/waiting"]["sentence"].startswith("the pinning agent says: ")
    report = tmp_path / "report.html"
    run("report", "-f", seen.dump, "-o", report)
    found = re.search(r'<script[^>]* id="documents"[^>]*>(.*?)</script>', report.read_text(), re.DOTALL)
    assert found
    assert json.loads(found[1])["node/node-1"] == node


def test_doctor_finds_nothing_wrong_with_it(seen: Seen) -> None:
    # Of the kubelet's node there is a hint: its reserved CPUs stay in the shared pool.
    found = [(finding["severity"], finding["subjects"]) for finding in seen.findings["findings"]]
    assert found == [("hint", ["node-2"])]
    offline = json.loads(run("doctor", "-f", seen.dump, "-o", "json"))
    # The dump lacks the Lease by which an operator outside the cluster is found.
    told = [finding for finding in offline["findings"] if finding["check"] != "operator"]
    assert told == seen.findings["findings"]


def test_it_is_found_by_its_entry_point_alone() -> None:
    show = "from numazones.placement import models; print(*models.models())"
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    found = [
        subprocess.run(
            [sys.executable, "-c", show],
            env={**clean, **more},
            cwd=FOLDER.parent,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for more in ({}, {"PYTHONPATH": str(FOLDER)})
    ]
    assert found[1] == sorted([*found[0], "pinned"])


def test_what_its_pods_say_of_their_eviction_is_heeded(installed: None) -> None:
    body = pod_body("costly")
    body["metadata"]["annotations"] = {
        "pinned.example/eviction-cost": "7",
        "other.example/eviction-cost": "9",
    }
    assert eviction_cost(ClusterPod.from_api(body)) == 7


async def test_all_predictions_are_right_on_simulated_nodes_of_it(installed: None, tmp_path: Path) -> None:
    simulation = placement_models.simulations()["pinned"]
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes(node_kinds.mixed(1, kinds=simulation.node_kinds))
        loop.start_scheduler()
        operator = await loop.start_operator()
        running: list[str] = []
        for number, body in enumerate(islice(placement_models.pods_for("pinned", 7), 40), start=1):
            name = body["metadata"]["name"]
            body["spec"]["terminationGracePeriodSeconds"] = 0
            await loop.client.create(PODS, body, namespace="default")
            await eventually(lambda number=number: is_verified(operator, number), what=name)  # type: ignore[misc]
            pod = ClusterPod.from_api(await loop.client.get(PODS, name, namespace="default"))
            # One that waits is tried again whenever another ends: who comes first then is nobody's promise.
            ended = [name] if pod.create_error else [*running[:1]] if len(running) == FULL else []
            running = [name for name in [*running, name] if name not in ended]
            for gone in ended:
                await loop.client.delete(PODS, gone, namespace="default", grace_seconds=0)
                await eventually(lambda gone=gone: is_gone(loop, gone), what=gone)  # type: ignore[misc]
        counted = await metrics(operator)
    assert counted[RIGHT] == 40
    assert counted[OUTCOME.format("Admitted", "Admissible")] > 20
    assert counted[OUTCOME.format("CreateContainerError", "Inadmissible")] > 1


async def is_gone(loop: Loop, name: str) -> bool:
    return name not in {body["metadata"]["name"] for body in await loop.client.list(PODS)}
