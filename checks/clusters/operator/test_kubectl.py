"""Predictions and events that people see through kubectl, as in the guide."""

import json
import os
import re
from pathlib import Path

from checks.clusters.operator.closed_loop import closed_loop
from checks.clusters.operator.kubectl import run
from numazones.api.crd import KINDS
from numazones_client import Resource
from numazones_simulator import node_kinds
from numazones_simulator.control_plane import control_plane
from tests.places import DATA
from tests.waiting import eventually

DATA = DATA / "golden" / "kubectl-get"


async def test_kubectl_shows_predictions_with_readable_columns(tmp_path: Path, kubectl: str) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        await loop.start_operator()
        await loop.create_pod("web-0", cpu=4)
        await loop.create_pod("trainer", cpu=40)
        for name in ("web-0", "trainer"):
            await eventually(lambda name=name: loop.verdict(name))  # type: ignore[misc]
        lines = (await run(kubectl, loop, "get", "admissionpredictions")).splitlines()
        assert lines[0].split() == ["NAME", "VERDICT", "NODES", "ACTUAL", "NODE", "NUMA", "AGE", "WHY"]
        rows = {line.split()[0]: line.split() for line in lines[1:]}
        assert rows["web-0"][1:6] == ["Admissible", "1/1", "Waiting", "worker-1", "0"]
        assert rows["trainer"][1:6] == ["Inadmissible", "0/1", "Waiting", "<none>", "<none>"]
        assert lines[1].endswith("40 exclusive CPUs requested, 30 free on NUMA node 0")

        async def event() -> bool:
            return "AdmissionImpossible" in await run(kubectl, loop, "get", "events")

        await eventually(event)


async def test_the_table_distinguishes_pods_that_wait_run_and_were_rejected(
    tmp_path: Path, kubectl: str
) -> None:
    async with closed_loop(tmp_path) as loop:
        await loop.start_nodes([node_kinds.single_numa_node("worker-1", "10.0.0.1")])
        operator = await loop.start_operator()
        for name, cpu in (("web-0", 4), ("trainer", 40), ("early", 2)):
            await loop.create_pod(name, cpu=cpu)
            await eventually(lambda name=name: loop.verdict(name))  # type: ignore[misc]
        for name in ("web-0", "trainer"):
            await loop.bind(name, "worker-1")

        async def shows(name: str, *cells: str) -> bool:
            lines = (await run(kubectl, loop, "get", "ap", name)).splitlines()
            heads = ("NODES", "ACTUAL", "NODE ", "NUMA", "WHY")
            row = [lines[1][lines[0].index(head) :].split("   ")[0].strip() for head in heads[:-1]]
            return [*row, lines[1][lines[0].index("WHY") :].strip()] == list(cells)

        await eventually(lambda: shows("web-0", "1/1", "Admitted", "worker-1", "0", ""))
        why = "40 exclusive CPUs requested, 30 free on NUMA node 1"
        await eventually(lambda: shows("trainer", "0/1", "Rejected", "worker-1", "<none>", why))
        assert await shows("early", "1/1", "Waiting", "worker-1", "0", "")
        # A pod that gets its node while no operator looks is seen running first.
        operator.stop()
        await eventually(lambda: not operator.leadership.leading)
        await loop.bind("early", "worker-1")
        assert loop.fleet is not None
        await eventually(lambda: loop.runs("early"))
        await loop.start_operator()
        await eventually(lambda: shows("early", "1/1", "Admitted", "worker-1", "<none>", ""))
        outcome = (await loop.predictions())["early"]["outcome"]
        assert (outcome["predicted"], outcome["accuracy"]) == ("Unknown", "Unknown")


WIDE = json.loads((DATA / "wide.json").read_text())


async def test_every_kind_is_shown_wide_in_160_columns(tmp_path: Path, kubectl: str) -> None:
    async with control_plane(tmp_path) as plane:
        for kind, bodies in WIDE.items():
            resource = next(one.RESOURCE for one in KINDS if one.RESOURCE.kind == kind)
            address = Resource(
                "numazones.io", "v1alpha1", resource.plural, namespaced=resource.scope == "Namespaced"
            )
            for body in bodies:
                full = {"apiVersion": "numazones.io/v1alpha1", "kind": kind, **body}
                namespace = body["metadata"].get("namespace", "")
                await plane.client.create(address, full, namespace=namespace)
                name = body["metadata"]["name"]
                await plane.client.patch(
                    address, name, {"status": body["status"]}, namespace=namespace, subresource="status"
                )
            shown = await run(kubectl, plane, "get", resource.plural, "-o", "wide")
            widest = max(map(len, shown.splitlines()))
            assert widest <= 160, f"docs/decisions.md promises 160 columns, and this needs {widest}:\n{shown}"
            told = re.sub(r"(?<= )\d+[smhdy]\w*\b", lambda age: "·" * len(age[0]), shown)
            golden = DATA / f"{resource.plural}.txt"
            if "NUMAZONES_REWRITE_GOLDEN" in os.environ:
                golden.write_text(told)
            assert _cells(told) == _cells(golden.read_text()), told


def _cells(table: str) -> list[list[str]]:
    """The cells, however wide ages have made their column."""
    return [re.split(" {2,}", line.rstrip()) for line in re.sub("·+", "·", table).splitlines()]
