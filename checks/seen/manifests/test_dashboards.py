"""The dashboards: made by the SDK, explained, each query asked of a Prometheus beside a simulated cluster."""

import asyncio
import copy
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from numazones_client.resources import PODS, REBALANCE_POLICIES
from numazones_client.usage import prometheus_usage
from numazones_simulator import node_kinds, simulated_cluster
from numazones_simulator.screen import Screen
from tests.manifests.kustomizations import MANIFESTS
from tests.manifests.promtool import RULES, RUNBOOKS, Series, Test, check
from tests.operator.pods import pod_body
from tests.places import ROOT

FOLDER = MANIFESTS / "grafana"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
TOOLS = ROOT / ".cache" / "tools" / "bin"
FILLED = {"$__rate_interval": "30s", "$__range": "5m"}
EXPECTED_EMPTY = {
    "kubelet_cpu_manager_allocation_per_numa": "simulated kubelets serve no metrics",
    "numa_node:cpu_manager_numa_allocation:difference": "simulated kubelets serve no metrics",
    "numazones_exclusive_cpu_interrupts_per_second": "no CPU is exclusive for a whole interval",
    "numazones_operator_object_errors_total": "no object raises",
    "numazones_operator_watch_restarts_total": "no watch ends",
    "numazones_rebalance_pods_evicted_total": "the policy only recommends, and nothing has to be moved",
}
"""Metric of a rule → why nobody makes it here."""
EMPTY_PANELS = {
    "Nodes ruled out for the scheduler": "no scheduler calls an extender here",
    "Time to respond to the scheduler": "no scheduler calls an extender here",
    "Difference from the kubelet's count": "simulated kubelets serve no metrics",
    "Owners of misaligned pods": "these nodes reject such pods",
    "Share of remote CPUs and memory": "no exporter counts the memory of control groups here",
    "Share of hugepages held": "these nodes have none",
    "Interrupts on exclusive CPUs": "no CPU is exclusive for a whole interval",
    "Watches that ended": "no watch ends",
    "Evicted pods": "the policy only recommends",
    "Evictions by result": "the policy only recommends",
    "Evictions by namespace and node": "the policy only recommends",
    "marks of Plans": "the policy only recommends",
    "marks of Evictions": "the policy only recommends",
}
MARKS_OF_PROMETHEUS = {"titleFormat", "textFormat", "step"}
"""Of an annotation, what Grafana's data source for Prometheus reads, and the SDK's type has not."""
"""Panel → why it is empty here; promtool evaluates it instead. Every other panel has to show data."""


def panels(dashboard: dict[str, Any]) -> list[dict[str, Any]]:
    return [panel for panel in dashboard["panels"] if panel["type"] != "row"]


def queries() -> Iterator[tuple[str, str, str]]:
    """Yield place, query, and why it may be empty, for every panel and every variable."""
    for name, dashboard in DASHBOARDS.items():
        for panel in panels(dashboard):
            for target in panel["targets"]:
                empty = panel["fieldConfig"]["defaults"].get("noValue", "")
                yield f"{name}: {panel['title']} {target['refId']}", target["expr"], empty
        for mark in dashboard.get("annotations", {}).get("list", ()):
            yield f"{name}: marks of {mark['name']} A", mark["expr"], "nothing is carried out"
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                inner = re.fullmatch(r"label_values\((.+), \w+\)", variable["query"]["query"])
                assert inner
                yield f"{name}: variable {variable['name']}", inner[1], ""


def title_of(where: str) -> str:
    """The panel's title, of what ``queries`` says of a place."""
    return where.partition(": ")[2].rpartition(" ")[0]


def filled(query: str) -> str:
    """A query with Grafana's variables filled in."""
    for name, value in FILLED.items():
        query = query.replace(name, value)
    query = re.sub(r'=~"\$(cluster|namespace|node|zone|shape)"', '=~".*"', query)
    assert "$" not in query, f"unknown variable in {query}"
    return query


def test_the_files_are_in_step_with_their_source(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "tools.dashboards", tmp_path], cwd=ROOT, check=True)
    made = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert made == {path.name: path.read_text() for path in FOLDER.glob("*.json")}, "run `make dashboards`"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_has_nothing_that_grafanas_schema_has_not(name: str) -> None:
    """Read into the SDK's types and written again, it is the same: types drop what they do not know."""
    register_default_plugins()
    known = copy.deepcopy(DASHBOARDS[name])
    for mark in known["annotations"].get("list", ()):
        for key in MARKS_OF_PROMETHEUS & mark.keys():
            del mark[key]
    again = json.loads(JSONEncoder(sort_keys=True).encode(Dashboard.from_json(known)))
    assert again == known


@pytest.mark.parametrize("name", DASHBOARDS)
def test_marks_use_labels_that_their_query_has(name: str) -> None:
    marks = DASHBOARDS[name]["annotations"].get("list", [])
    assert [mark["name"] for mark in marks] == (
        [] if name == "numazones-operations" else ["Plans", "Evictions"]
    )
    for mark in marks:
        grouped = re.match(r"sum by \((.+?)\)", mark["expr"])
        assert grouped
        used = re.findall(r"{{(\w+)}}", mark["titleFormat"] + mark["textFormat"])
        assert set(used) == set(grouped[1].split(", "))
        assert mark["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_explains_itself(name: str) -> None:
    dashboard = DASHBOARDS[name]
    assert dashboard["uid"] == name
    numbers = [panel["id"] for panel in panels(dashboard)]
    assert len(numbers) == len(set(numbers))
    for panel in panels(dashboard):
        assert panel["title"]
        assert panel["description"].endswith("."), panel["title"]
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert panel["datasource"]["uid"] == "${datasource}"
        corner = panel["gridPos"]
        assert corner["x"] + corner["w"] <= 24, panel["title"]
    cells = [cell for panel in dashboard["panels"] for cell in covered(panel["gridPos"])]
    assert len(cells) == len(set(cells)), "panels lie upon each other"


def covered(corner: dict[str, int]) -> Iterator[tuple[int, int]]:
    for x in range(corner["x"], corner["x"] + corner["w"]):
        for y in range(corner["y"], corner["y"] + corner["h"]):
            yield x, y


def test_links_lead_to_existing_runbooks_and_other_dashboards() -> None:
    headings = {line[3:].lower() for line in RUNBOOKS.read_text().splitlines() if line.startswith("## ")}
    links = [
        link["url"]
        for board in DASHBOARDS.values()
        for panel in panels(board)
        for link in panel.get("links", ())
    ]
    assert len(links) > len(DASHBOARDS)
    assert {link.removeprefix("${runbooks}/#") for link in links} <= headings
    for board in DASHBOARDS.values():
        assert [(link["type"], link["tags"]) for link in board["links"]] == [
            ("dashboards", ["numazones"]),
            ("link", []),
        ]
        assert "numazones" in board["tags"]


ACCURACY = "numazones_prediction_accuracy_total"
WRITES = "numazones_operator_api_writes_total"
SPREAD, KUBELETS = "cpu_manager_numa_allocation_spread", "kubelet_cpu_manager_allocation_per_numa"


EVICTIONS = {
    "numazones_rebalance_pods_evicted_total{result='success',namespace='shop',node='a',policy='p'}": "0+1x10",
    "numazones_rebalance_pods_evicted_total{result='blocked',namespace='shop',node='a',policy='p'}": "0+2x10",
}
PLANS = "numazones_rebalance_recommendations_total"
LABELS_OF_ZONE = "{{node='{node}',numa_node='0',resource='{resource}',unit='{unit}'}}"
ZONE_GAUGE = "numazones_cluster_zone_{amount}" + LABELS_OF_ZONE
HALF_FULL = {
    ZONE_GAUGE.format(amount=amount, node=node, resource="cpu", unit="core"): f"{value}x10"
    for node, held in (("full", 8), ("half", 4), ("more", 5), ("empty", 0))
    for amount, value in (("assigned", held), ("allocatable", 8), ("available", 8 - held))
}
LYING = {
    "numazones_owner_misaligned_pods{namespace='n',owner_kind='Job',owner='a',alignable='now'}": "2x10",
    "numazones_owner_misaligned_pods{namespace='n',owner_kind='Job',owner='a',alignable='never'}": "1x10",
    "numazones_owner_misaligned_pods{owner='(others)',alignable='now'}": "9x10",
    "numazones_owner_cpus{namespace='n',owner_kind='Job',owner='a',placement='local'}": "2x10",
    "numazones_owner_cpus{namespace='n',owner_kind='Job',owner='a',placement='remote'}": "1x10",
    "numazones_owner_cpus{owner='(others)',placement='local'}": "1x10",
    "numazones_owner_cpus{owner='(others)',placement='remote'}": "0x10",
    "numazones_owner_promised_memory_bytes{owner='(others)',placement='remote'}": "0x10",
}
WORKED_OUT: list[tuple[str, Series, dict[str, float]]] = [
    # What two selectors make together holds where one of them finds nothing.
    ("Correct predictions", {f"{ACCURACY}{{accuracy='right'}}": "0+1x10"}, {"{}": 1}),
    ("Correct predictions", {f"{ACCURACY}{{accuracy='race'}}": "0+1x10"}, {"{}": 0}),
    ("Correct predictions", {f"{ACCURACY}{{accuracy='unknown'}}": "0+1x10"}, {}),
    (
        "Correct predictions by model",
        {
            f"{ACCURACY}{{accuracy='stale',model='kubelet'}}": "0+1x10",
            f"{ACCURACY}{{accuracy='right',model='koordinator'}}": "0+1x10",
        },
        {"{model='kubelet'}": 0, "{model='koordinator'}": 1},
    ),
    ("Failed writes", {f"{WRITES}{{result='ok'}}": "0+1x10"}, {"{}": 0}),
    ("Failed writes", {f"{WRITES}{{result='403'}}": "0+1x10"}, {"{}": 1}),
    ("Failed writes", {f"{WRITES}{{result='ok'}}": "5x10"}, {}),
    (
        "Difference from the kubelet's count",
        {
            f"{SPREAD}{{node='a',numa_node='0'}}": "8x10",
            f"{SPREAD}{{node='a',numa_node='1'}}": "0x10",
            f"{KUBELETS}{{node='a',numa_node='0',job='kubelet'}}": "6x10",
            f"{KUBELETS}{{node='a',numa_node='1',job='kubelet'}}": "6x10",
        },
        {"{node='a',numa_node='0'}": 2},
    ),
    ("Difference from the kubelet's count", {f"{SPREAD}{{node='a',numa_node='0'}}": "8x10"}, {}),
    (
        "Interrupts on exclusive CPUs",
        {
            f"numazones_exclusive_cpu_interrupts_per_second{{node='a',numa_node='0',cpu='3',interrupt='{name}',"
            f"description='{name} eth0'}}": value
            for name, value in (("24", "600x10"), ("RES", "900x10"))
        },
        {"{node='a',cpu='3',description='24 eth0'}": 600},
    ),
    (
        "Share of hugepages held",
        {
            "numazones_zone_allocatable{node='a',numa_node='0',resource='hugepages-2Mi'}": "8x10",
            "numazones_zone_allocatable{node='a',numa_node='0',resource='hugepages-1Gi'}": "0x10",
            "numazones_zone_assigned{node='a',numa_node='0',resource='hugepages-2Mi'}": "2x10",
            "numazones_zone_assigned{node='a',numa_node='0',resource='hugepages-1Gi'}": "0x10",
        },
        {"{node='a',numa_node='0',resource='hugepages-2Mi'}": 0.25},
    ),
    (
        "Time to respond to the scheduler",
        {
            f"numazones_extender_request_duration_seconds_bucket{{verb='bind',le='{le}'}}": "0+60x10"
            for le in ("0.01", "+Inf")
        }
        | {"numazones_extender_request_duration_seconds_bucket{verb='bind',le='0.005'}": "0x10"},
        {"{verb='bind'}": 0.00995},
    ),
    (
        "Nodes ruled out for the scheduler",
        {"numazones_extender_rejected_nodes_total{reason='kubelet: TopologyAffinityError'}": "0+60x10"},
        {"{reason='kubelet: TopologyAffinityError'}": 60},
    ),
    (
        "Policies that are not followed",
        {
            "numazones_rebalance_policy_ready{policy='a'}": "0x10",
            "numazones_rebalance_policy_ready{policy='b'}": "1x10",
        },
        {"{}": 1},
    ),
    (
        "Watches that ended",
        {"numazones_operator_watch_restarts_total{resource='pods',reason='ended'}": "0+60x10"},
        {"{resource='pods',reason='ended'}": 60},
    ),
    ("Evicted pods", EVICTIONS, {"{}": 5}),
    ("marks of Evictions", EVICTIONS, {"{namespace='shop',node='a',policy='p'}": 2}),
    (
        "marks of Plans",
        {f"{PLANS}{{policy='p',mode='Auto',phase='{phase}'}}": "0x8 1x2" for phase in ("Failed", "Proposed")},
        {"{policy='p',mode='Auto',phase='Failed'}": 1},
    ),
    ("marks of Plans", {f"{PLANS}{{policy='p',mode='Auto',phase='Failed'}}": "1x10"}, {}),
    ("NUMA nodes by share of CPUs held | A", HALF_FULL, {"{}": 1}),
    ("NUMA nodes by share of CPUs held | B", HALF_FULL, {"{}": 0}),
    ("NUMA nodes by share of CPUs held | C", HALF_FULL, {"{}": 2}),
    ("NUMA nodes by share of CPUs held | F", HALF_FULL, {"{}": 1}),
    (
        "Free devices on NUMA nodes without free CPUs",
        HALF_FULL
        | {
            ZONE_GAUGE.format(amount="available", node=node, resource="gpu", unit="integer"): "2x10"
            for node in ("full", "half")
        },
        {"{resource='gpu'}": 2},
    ),
    (
        "Longest-waiting pods",
        {"numazones_blocked_pod_created_timestamp_seconds{namespace='n',pod='p',reason='r'}": "60x10"},
        {"{namespace='n',pod='p',reason='r'}": 540},
    ),
    ("Owners of misaligned pods | A", LYING, {"{namespace='n',owner_kind='Job',owner='a'}": 3}),
    ("Owners of misaligned pods | B", LYING, {"{namespace='n',owner_kind='Job',owner='a'}": 2}),
    ("Owners of misaligned pods | C", LYING, {"{namespace='n',owner_kind='Job',owner='a'}": 1}),
    ("Share of remote CPUs and memory | A", LYING, {"{}": 0.25}),
    ("Share of remote CPUs and memory | B", LYING, {}),
    (
        "Share of remote CPUs and memory | C",
        {
            f"numazones_node_resident_memory_bytes{{node='{node}',placement='{placement}'}}": "1x10"
            for node, placement in (("a", "local"), ("b", "remote"))
        },
        {"{}": 0.5},
    ),
    ("Evictions by result", EVICTIONS, {"{result='success'}": 5, "{result='blocked'}": 10}),
    (
        "Evictions by namespace and node",
        EVICTIONS,
        {
            "{result='success',namespace='shop',node='a',policy='p'}": 5,
            "{result='blocked',namespace='shop',node='a',policy='p'}": 10,
        },
    ),
]


@pytest.mark.parametrize("title", EMPTY_PANELS)
def test_empty_panels_give_a_reason_and_are_checked_by_promtool(title: str) -> None:
    assert all(empty for where, _, empty in queries() if title_of(where) == title)
    assert title in {case[0].partition(" | ")[0] for case in WORKED_OUT}


def test_panels_work_out_what_their_series_mean(tmp_path: Path) -> None:
    tests: list[Test] = []
    for case, series, expected in WORKED_OUT:
        title, _, letter = case.partition(" | ")
        (query,) = {
            filled(query.replace("$__rate_interval", "5m"))
            for where, query, _ in queries()
            if title_of(where) == title and where.endswith(letter)
        }
        samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
        question = {"expr": query, "eval_time": "10m", "exp_samples": samples}
        tests.append((series, {"promql_expr_test": [question]}))
    check(tmp_path, tests)


async def ask(session: aiohttp.ClientSession, url: str, query: str) -> list[Any]:
    try:
        async with session.get(f"{url}/api/v1/query", params={"query": query}) as answer:
            body = await answer.json(content_type=None)
    except aiohttp.ClientConnectionError:
        return []
    assert body.get("status") == "success", (query, body)
    found: list[Any] = body["data"]["result"]
    return [] if any(item["value"][1] == "NaN" for item in found) else found


def questions() -> dict[str, str]:
    """Map the place of each query that must have data to the query; for rules, every metric they name."""
    left = {where: filled(query) for where, query, _ in queries() if title_of(where) not in EMPTY_PANELS}
    recorded = {rule["record"] for group in RULES for rule in group["rules"] if "record" in rule}
    named = {
        name
        for group in RULES
        for rule in group["rules"]
        for name in re.findall(
            r"\b(?:\w+:\w+:\w+|(?:numazones|cpu_manager|kubelet)_\w+)(?=[{\[\s)]|$)", rule["expr"]
        )
    }
    assert EXPECTED_EMPTY.keys() <= named | recorded
    return left | {f"rules: {name}": name for name in (named | recorded) - EXPECTED_EMPTY.keys()}


@pytest.mark.slow
async def test_every_query_returns_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(TOOLS), prepend=":")
    if shutil.which("prometheus") is None:
        pytest.skip("prometheus is neither on PATH nor in .cache/tools/bin (tools/test-tools .cache)")
    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": RULES}))
    specs = [
        node_kinds.single_numa_node("node-1", "10.77.0.1"),
        node_kinds.restricted_pods("node-2", "10.77.0.2"),
    ]
    policy = {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalancePolicy",
        "metadata": {"name": "keep-room"},
        "spec": {"mode": "Recommend", "goals": {"pendingPods": True}},
    }
    arguments = ("--admission-gate", "--rebalance-period=300ms")
    async with (
        simulated_cluster.running(specs, tmp_path, Screen(), operator=arguments) as cluster,
        aiohttp.ClientSession() as session,
    ):
        client = cluster.plane.client
        await client.create(REBALANCE_POLICIES, policy)
        url = await cluster.start_prometheus(tmp_path, rules=[rules])
        left, number = questions(), 0
        for _ in range(300):
            # Pods that are admitted, pods that are rejected, and pods that no node can take.
            for cpu in (3, 14, 2, 200):
                number += 1
                body = pod_body(f"p{number}", cpu=cpu, terminationGracePeriodSeconds=0)
                await client.create(PODS, body, namespace="default")
                if number > 40:
                    await client.delete(PODS, f"p{number - 40}", namespace="default")
            await asyncio.sleep(1)
            cluster.programs.check()
            left = {where: query for where, query in left.items() if not await ask(session, url, query)}
            if not left:
                break
        assert not left, f"no data for {left}"
        for where, query, _ in queries():
            assert isinstance(await ask(session, url, filled(query)), list), where  # it is valid
        usage = await prometheus_usage(url, "30s")
        assert {node for node, _ in usage.numas} == {"node-1", "node-2"}
        assert all(0 < use.busy["reserved"] < 1 for (_, numa), use in usage.numas.items() if not numa)
        assert all(use.memory for use in usage.numas.values())
        assert {use.node for use in usage.containers} <= {"node-1", "node-2"}
