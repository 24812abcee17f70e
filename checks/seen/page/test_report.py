"""The report in a real browser."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from checks.seen.page.browser import Open, serious
from checks.seen.page.test_pictures import CLIPPED, fleet
from kubectl_numazones.main import commands
from numazones.cluster.cluster import ClusterNode
from numazones.cluster.usage import NUMAUse, Usage
from numazones.errors import NumazonesError
from numazones.placement.fragmentation import Shape
from numazones_page import html
from numazones_page.documents import cluster_document, node_documents, use_documents
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement
from tests.kubectl.best_effort_cluster import best_effort_cluster
from tests.kubectl.guide_cluster import guide_cluster
from tests.models.topology_aware.machines import configuration
from tests.numazones.kubelet import building
from tests.support.page.clusters import dump, nodes_of

HOSTILE = "<script>document.title='taken'</script></script><img src=x onerror=alert(1)>"


def report_of(items: list[dict[str, Any]], directory: Path, *arguments: str) -> str:
    """Write a report with the real command, and return its address."""
    source, target = directory / "dump.json", directory / "report.html"
    source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    command = ["report", "-f", str(source), "-o", str(target), *arguments]
    result = CliRunner().invoke(commands, command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return target.as_uri()


def recommendation(name: str) -> dict[str, Any]:
    """One move that the operator would make for team/trainer."""
    move = {
        "pod": {"namespace": "team", "name": "web-1", "uid": "web-1"},
        "source": {"node": "worker-1", "numaIDs": [0]},
        "target": {"node": "worker-2", "numaIDs": [0]},
    }
    return {
        "apiVersion": "numazones.io/v1alpha1",
        "kind": "RebalanceRecommendation",
        "metadata": {"name": name},
        "spec": {
            "policy": name,
            "goal": f"pod team/{name}",
            "moves": [move],
            "gain": {"before": 0, "after": 1, "total": 1},
            "disruption": {"evictions": 1, "cpus": "3"},
            "digest": name,
            "expires": "2999-01-01T00:00:00Z",
        },
    }


@pytest.fixture(scope="module")
def guide(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The cluster of docs/guides/kubectl.md: fragmented, one pod stuck, one plan."""
    return report_of(guide_cluster(), tmp_path_factory.mktemp("guide"), "--title", "guide")


@pytest.fixture
def dump_path(tmp_path: Path) -> Path:
    path = tmp_path / "guide.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": guide_cluster()}))
    return path


@pytest.fixture(scope="module")
def twenty(tmp_path_factory: pytest.TempPathFactory) -> str:
    return report_of(dump(20), tmp_path_factory.mktemp("twenty"))


def test_stuck_pod_is_shown_with_reason_holders_advice_and_plan(guide: str, open_page: Open) -> None:
    page = open_page(guide)
    expect(page).to_have_title("guide · numazones")
    card = page.locator("#waiting article")
    expect(card.locator("h3")).to_have_text("team/trainer")
    expect(card).to_contain_text(
        "needs 5 exclusive CPUs on one NUMA node; at most 4 are free on one NUMA node"
    )
    expect(card).to_contain_text("move team/web-1, which holds 3 CPUs, to worker-2")
    # What helps comes before everything else there is to know, and that before the zones.
    said = page.locator("main").inner_text()
    order = [
        "1 pod is stuck",
        "needs 5 exclusive",
        "What would help",
        "rejected since",
        "would admit it",
        "Colour",
    ]
    assert sorted(order, key=said.index) == order
    expect(card).to_contain_text("1 pod rejected since 2026-11-20 10:00:00 UTC")
    card.get_by_text("Who holds what on worker-1").click()
    expect(card.locator("details").last).to_contain_text("team/cache-1")
    expect(page.locator("#plans article h3")).to_have_text("pod team/trainer-2")


def test_from_cluster_to_core_and_back_by_keyboard_alone(guide: str, open_page: Open) -> None:
    page = open_page(guide)
    page.locator("[data-key=heat-order]").focus()
    page.keyboard.press("Tab")
    assert focused(page) == "node-worker-1"
    page.keyboard.press("ArrowRight")
    assert focused(page) == "node-worker-2"
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.locator("h2")).to_have_text(["worker-1"])
    expect(page.locator(".machine i[data-pod='team/web-1']")).to_have_count(3)
    while focused(page) != "pod-team/web-1":
        page.keyboard.press("Tab")
    page.keyboard.press("Space")
    expect(page.locator(".machine i:not(.dim)")).to_have_count(3)
    while focused(page) != "back":
        page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#zones")).to_be_visible()
    assert focused(page) == "node-worker-1"


def focused(page: Page) -> str | None:
    key: str | None = page.evaluate("document.activeElement.dataset.key || null")
    return key


def test_a_plan_is_played_step_by_step(guide: str, open_page: Open) -> None:
    page = open_page(guide, reduced_motion="reduce")
    player = page.locator(".player")
    tracks = player.locator(".track")
    expect(tracks).to_contain_text(
        ["waiting for a node", "worker-1 · NUMA 0 4 of 7 CPUs free", "worker-2 · NUMA 0 4 of 7 CPUs free"]
    )
    player.get_by_role("button", name="After").click()
    expect(player.locator("output")).to_have_text("Step 2 of 2: team/trainer-2 runs on worker-1 NUMA 0")
    expect(tracks).to_contain_text(["none", "worker-1 · NUMA 0 2 of 7 CPUs free", "1 of 7 CPUs free"])
    player.get_by_role("slider").press("ArrowLeft")
    expect(player.locator("output")).to_contain_text("Step 1 of 2: team/web-1 moves from worker-1 NUMA 0")
    player.get_by_role("button", name="Before").click()
    player.get_by_role("button", name="Play").click()
    expect(player.locator("output")).to_contain_text("Step 2 of 2")
    expect(player.get_by_role("button", name="Play")).to_be_visible()


def test_moves_are_animated_unless_people_asked_for_less_motion(guide: str, open_page: Open) -> None:
    duration = "getComputedStyle(document.querySelector('.block')).transitionDuration"
    assert open_page(guide, reduced_motion="no-preference").evaluate(duration) == "0.6s, 0.6s, 0.4s"
    assert open_page(guide, reduced_motion="reduce").evaluate(duration) == "0s"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("place", ["", "#/node/node-4", "#/node/node-2/1"])
def test_axe_finds_nothing_serious(twenty: str, open_page: Open, scheme: str, place: str) -> None:
    assert serious(open_page(twenty + place, color_scheme=scheme, reduced_motion="reduce")) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious_about_plans(guide: str, open_page: Open, scheme: str) -> None:
    page = open_page(guide, color_scheme=scheme, reduced_motion="reduce")
    page.get_by_role("button", name="After").click()
    assert serious(page) == []


def test_dark_mode_is_the_systems(guide: str, open_page: Open) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    assert open_page(guide, color_scheme="light").evaluate(paper) == "rgb(246, 248, 250)"
    assert open_page(guide, color_scheme="dark").evaluate(paper) == "rgb(13, 19, 25)"


@pytest.mark.parametrize("place", ["", "#/node/node-1"])
@pytest.mark.parametrize("width", [360, 390])
def test_nothing_is_wider_than_a_telephone(twenty: str, open_page: Open, place: str, width: int) -> None:
    page = open_page(twenty + place, viewport={"width": width, "height": 740})
    page.evaluate("document.querySelectorAll('details').forEach((part) => (part.open = true))")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CLIPPED) == []


def test_names_of_pods_are_legible_on_a_telephone(twenty: str, open_page: Open) -> None:
    page = open_page(twenty + "#/node/node-1", viewport={"width": 360, "height": 740})
    heights = page.locator("td button.pod").evaluate_all("names => names.map(name => name.offsetHeight)")
    assert heights
    assert max(heights) < 60


def test_table_with_card_rows_stays_a_table_for_screen_readers(twenty: str, open_page: Open) -> None:
    page = open_page(twenty + "#/node/node-1", viewport={"width": 390, "height": 740})
    table = page.get_by_role("table")
    expect(table.get_by_role("columnheader")).to_have_text(
        ["Pod", "CPUs", "Memory (NUMA node)", "Devices", "Alignment"]
    )
    assert table.get_by_role("row").first.get_by_role("cell").count() == 0  # it is the head
    label = "getComputedStyle(document.querySelector('td'), '::before').content"
    assert page.evaluate(label) == '"Pod"'


def test_the_word_at_the_top_is_red_or_green(guide: str, tmp_path: Path, open_page: Open) -> None:
    page = open_page(guide)
    word = page.get_by_role("status").filter(has_text="pod")
    expect(word).to_have_text("1 pod is stuck")
    expect(page.locator("p.says")).to_have_text("1 fits nowhere; 1 was rejected and stays until deleted.")
    colour = "getComputedStyle(document.querySelector('.word')).color"
    assert page.evaluate(colour) == "rgb(171, 31, 23)"
    items = [item for item in guide_cluster() if item["metadata"]["name"] != "trainer-2"]
    page = open_page(report_of(items, tmp_path))
    expect(page.locator("p.says")).to_have_text("1 was rejected and stays until deleted.")
    expect(page.locator("#waiting")).to_contain_text("TopologyAffinityError on worker-1")
    items = [item for item in items if item["metadata"]["name"] != "trainer-1"]
    page = open_page(report_of(items, tmp_path))
    expect(page.locator(".word")).to_have_text("No pod is stuck")
    expect(page.locator("p.says")).to_have_text("Every pod with NUMA requirements has a node.")
    assert page.evaluate(colour) == "rgb(28, 107, 74)"
    for part in ("#waiting", "#plans", "#held", "#unknown"):
        expect(page.locator(part)).to_be_hidden()


def test_nothing_is_counted_while_the_cluster_is_read(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(guide_cluster(), tmp_path))
    expect(page.locator("#zones")).to_be_visible()
    report = tmp_path / "report.html"
    read, being_read = '"reading":false', '"reading":true'
    assert report.read_text().count(read) == 1
    report.write_text(report.read_text().replace(read, being_read))
    page.reload()
    expect(page.locator(".word")).to_have_text("Reading the cluster")
    for place in ("a.figure", "#zones", "#fragmentation"):
        expect(page.locator(place)).to_be_hidden()


def test_figures_lead_to_what_they_count(tmp_path: Path, open_page: Open) -> None:
    items = [item for item in fleet() if item["metadata"]["name"] != "node-2-numa-1"]
    page = open_page(report_of(items, tmp_path))
    figures = page.locator("a.figure")
    expect(figures.locator(".label")).to_have_text(
        [
            "plan",
            "pods on their way",
            "node in unknown state",
            "pods not aligned",
            "nodes",
            "of exclusive CPUs held",
        ]
    )
    for figure in figures.all():
        figure.click()
        place = (figure.get_attribute("href") or "").removeprefix("#")
        expect(page.locator(f"#{place}")).to_be_visible()
        expect(page.locator(f"#{place}")).to_be_in_viewport()
        assert page.evaluate("document.activeElement.id") == place
    page.locator(".word a").click()
    expect(page.locator("#waiting")).to_be_in_viewport()


def test_room_held_for_released_pods_shows_per_node_and_zone(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(fleet(), tmp_path))
    expect(page.locator("#held tbody tr")).to_contain_text(
        ["released from the gate", "nominated by a scheduler"]
    )
    expect(page.locator("#held tbody tr").first).to_contain_text("10:01:00 UTC")
    tile = page.locator("[data-node=node-4]")
    expect(tile).to_contain_text("1 on the way")
    expect(tile).to_have_attribute(
        "aria-label", re.compile("4 CPUs are held for shop/api-7, released from the gate, until")
    )
    expect(tile.locator(".zone.coming")).to_have_count(1)
    tile.click()
    expect(page.locator(".notice")).to_have_text(
        "4 CPUs are held for shop/api-7, released from the gate, until 10:01:00 UTC"
    )
    expect(page.locator(".zonecard").filter(has_text="held for shop/api-7: 4 CPUs")).to_have_count(1)


def test_misaligned_pods_are_marked_and_listed_worst_first(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(best_effort_cluster(), tmp_path))
    figure = page.locator("a.figure[href='#alignment']")
    expect(figure.locator("span")).to_have_text(["3", "pods not aligned", "of 9"])
    rows = page.locator("#alignment tbody tr")
    assert [row.locator("td").all_inner_texts() for row in rows.all()] == [
        ["team/db-1", "worker-1", "spanning 2 NUMA nodes", "2"],
        ["team/batch-1", "worker-2", "spanning 2 NUMA nodes", "1"],
        ["team/router-4", "worker-3", "remote from nic.example/vf", ""],
    ]
    expect(page.locator("a.node[data-node='worker-1']")).to_contain_text("0 + 2 CPUs free · 1 not aligned")
    assert page.locator("a.node i.apart").count() == 3
    page.get_by_label("Find").fill("router remote")
    expect(rows).to_have_count(1)
    page.locator("#alignment").get_by_role("link", name="worker-3").click()
    expect(page.locator(".view .misaligned")).to_have_text("remote from nic.example/vf")
    assert serious(page) == []
    page.goto(page.url.replace("worker-3", "worker-1"))
    apart = page.locator(".machine i.apart")
    expect(apart).to_have_count(2)
    assert [mark.get_attribute("title") for mark in apart.all()] == [
        f"CPU {cpu}: team/db-1, on a different NUMA node from the rest of its container" for cpu in (3, 11)
    ]


def test_where_all_are_aligned_nothing_is_said_of_it(guide: str, open_page: Open) -> None:
    page = open_page(guide)
    expect(page.locator("#alignment")).to_be_hidden()
    assert page.get_by_text("not aligned").locator("visible=true").count() == 0


def test_many_waiting_pods_are_grouped_by_reason_and_searchable(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(dump(20, waiting=40), tmp_path, "--no-plans"))
    groups = page.locator("#waiting .group")
    expect(groups.first.locator("h3")).to_have_text(
        re.compile("Insufficient cpu: [0-9]+ pods of [0-9]+ owners")
    )
    expect(groups.first.locator(".row")).to_have_count(5)
    groups.first.get_by_role("button", name="more").click()
    assert groups.first.locator(".row").count() > 5
    groups.first.locator("summary").first.click()
    expect(groups.first.locator(".row").first).to_contain_text("What would help")
    page.locator("[data-key=find]").fill("trainer-40")
    expect(page.locator("#waiting article, #waiting .row")).to_have_count(1)
    page.locator("[data-key=find]").fill("nothing-like-it")
    expect(page.locator("#waiting")).to_contain_text("No matching pods.")
    expect(page.locator("#zones")).to_contain_text("No matching nodes.")


def test_nodes_of_unknown_state_are_grouped_by_reason(tmp_path: Path, open_page: Open) -> None:
    lost = {f"node-{number}-numa-1" for number in range(1, 13)}
    items = [item for item in dump(14, waiting=0) if item["metadata"]["name"] not in lost]
    page = open_page(report_of(items, tmp_path))
    section = page.locator("#unknown")
    expect(section.locator("tbody > tr")).to_contain_text(
        ["node NODE: 1 of 2 NUMAZones published so far", "node NODE: 3 of 4 NUMAZones published so far"]
    )
    expect(section.locator("tbody > tr > td:first-child")).to_have_text(["8", "4"])
    section.locator("summary").click()
    expect(section.locator("a")).to_have_count(12)


def test_advice_is_in_the_words_of_why(guide: str, dump_path: Path, open_page: Open) -> None:
    said = CliRunner().invoke(commands, ["why", "rs/trainer", "-n", "team", "-f", str(dump_path)]).output
    helpful = [line.removeprefix("  - ") for line in said.splitlines() if line.startswith("  - ")]
    assert len(helpful) == 5
    shown = open_page(guide).locator(".advice li").all_inner_texts()
    assert shown[:-1] == helpful  # the last is a plan, which the report looks for


def test_markup_in_names_is_text(tmp_path: Path, open_page: Open) -> None:
    text = json.dumps(guide_cluster()).replace("web-1", json.dumps(HOSTILE)[1:-1])
    page = open_page(report_of(json.loads(text), tmp_path, "--title", HOSTILE))
    expect(page).to_have_title(f"{HOSTILE} · numazones")
    expect(page.locator("#waiting")).to_contain_text(f"move team/{HOSTILE}")
    page.locator("a.node").first.click()
    expect(page.locator("table").first).to_contain_text(HOSTILE)
    assert page.locator("img").count() == 0


def test_the_policy_forbids_every_other_script(guide: str, open_page: Open, tmp_path: Path) -> None:
    page = open_page(guide)
    policy = page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert policy.startswith("default-src 'none'; img-src data:; base-uri 'none'; form-action 'none'; script")
    assert "unsafe" not in policy
    text = Path(guide.removeprefix("file://")).read_text(encoding="utf-8")
    assert text.count("'sha256-") == 2


def test_it_asks_nobody_for_anything(guide: str, open_page: Open) -> None:
    page = open_page("about:blank")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(guide)
    expect(page.locator(".figures")).to_be_visible()
    assert [url for url in requests if not url.startswith("data:")] == [guide]


def test_thousand_nodes_have_a_tile_each_and_can_be_found(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(dump(1000, waiting=0), tmp_path))
    expect(page.locator("a.node")).to_have_count(1000)
    page.locator("[data-key=find]").fill("node-777")
    expect(page.locator("a.node")).to_have_count(1)
    expect(page.locator("a.node")).to_have_attribute("href", "#/node/node-777")


def test_comparisons_of_settings_become_tables(tmp_path: Path, dump_path: Path, open_page: Open) -> None:
    asked = ("whatif", "-f", str(dump_path), "--set", "topologyManagerPolicy=best-effort", "--runs", "3")
    found = CliRunner().invoke(commands, [*asked, "-o", "json"], catch_exceptions=False)
    comparison = tmp_path / "whatif.json"
    comparison.write_text(found.stdout)
    page = open_page(report_of(guide_cluster(), tmp_path, "--whatif", str(comparison)))
    section = page.locator("#whatif")
    expect(section).to_contain_text("3 runs with seed")
    expect(section.locator("th")).to_have_text(
        ["Measure", "current settings", "topologyManagerPolicy=best-effort"]
    )
    mean = json.loads(found.stdout)["variants"][1]["measures"]["admitted"]["mean"]
    expect(section.locator("tbody tr").first).to_contain_text(f"{mean:.2f} (")
    assert serious(page) == []


def test_unreadable_recommendation_is_left_out_and_named(open_page: Open, tmp_path: Path) -> None:
    items = [*guide_cluster(), recommendation("whole"), recommendation("broken")]
    del items[-1]["spec"]["gain"]
    source, target = tmp_path / "dump.json", tmp_path / "report.html"
    source.write_text(json.dumps({"kind": "List", "items": items}))
    result = CliRunner().invoke(commands, ["report", "-f", str(source), "-o", str(target), "--no-plans"])
    said = "left out, because it cannot be read: RebalanceRecommendation broken: spec.gain is missing"
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {said}")
    assert result.stdout == f"{target}: 2 nodes, 1 stuck pod, 1 plan\n"
    page = open_page(target.as_uri())
    expect(page.locator("p.notice")).to_contain_text(said)
    expect(page.locator("#plans")).to_contain_text("whole")
    expect(page.locator("#plans code")).to_have_text(
        ["kubectl numazones approve whole", "kubectl numazones reject whole"]
    )


def test_a_file_without_a_comparison_is_named(dump_path: Path) -> None:
    result = CliRunner().invoke(commands, ["report", "-f", str(dump_path), "--whatif", str(dump_path)])
    assert isinstance(result.exception, NumazonesError)
    assert "contains no comparison of settings; create one with kubectl numazones whatif -o json" in str(
        result.exception
    )


def test_one_node_is_shown_as_a_machine_at_once(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report_of(dump(1), tmp_path))
    expect(page.locator("#zones .machine .zonecard")).to_have_count(2)
    expect(page.locator("a.node")).to_be_hidden()


def test_nodes_of_other_models_count_in_fragmentation(tmp_path: Path, open_page: Open) -> None:
    shapes = (Shape.parse("cpu=4"),)
    documents = cluster_document(source="two", shapes=shapes)
    for node in nodes_of(guide_cluster()).values():
        documents |= node_documents(node, shapes)
    hardware = Hardware.of(building.node().machine)
    other = TopologyAwareNode.fresh(hardware, configuration(prefer_isolated=False))
    roomy = ClusterNode("other", allocatable={"cpu": 12_000, "memory": 1 << 30}, pod_slots=9)
    documents |= node_documents(roomy.with_placement(TopologyAwarePlacement(other)), shapes)
    file = tmp_path / "page.html"
    file.write_text(html.report(documents, title="two"))
    section = open_page(file.as_uri()).locator("#fragmentation")
    expect(section).to_contain_text("5 more fit; 29% of the 28 free CPUs")


def test_held_and_used_cpus_are_shown_by_numa_node(tmp_path: Path, open_page: Open) -> None:
    documents = cluster_document(source="two", shapes=())
    nodes = nodes_of(guide_cluster())
    first, *_, last = nodes
    measured = Usage(
        {(first, 0): NUMAUse({"exclusive": 0.4 / 3, "shared": 0.25}, 1 << 30)}, (), {last: "gone"}
    )
    for node in nodes.values():
        documents |= node_documents(node, ()) | use_documents(node, measured)
    file = tmp_path / "page.html"
    file.write_text(html.report(documents, title="two"))
    page = open_page(file.as_uri())
    page.locator("#zones select").first.select_option("used")
    page.locator("a.node").first.click()
    card = page.locator(".zonecard").first
    expect(card).to_contain_text("CPUs in use0.4 of 3 held")
    expect(card).to_contain_text("shared pool25% busy")
    expect(card).to_contain_text("memory in use1 GiB of")
    page.goto(f"{file.as_uri()}#/node/{last}")
    expect(page.locator(".notice")).to_have_text("Usage unknown: gone")


def test_room_for_scheduler_allocated_devices_is_unknown(tmp_path: Path, open_page: Open) -> None:
    shapes = (Shape.parse("cpu=4,vendor.example/dra=1"),)
    documents = cluster_document(source="one", shapes=shapes)
    node = ClusterNode("worker", allocatable={"cpu": 8000}, device_classes={"vendor.example/dra": "class"})
    documents |= node_documents(node.with_state(building.node()), shapes)
    file = tmp_path / "page.html"
    file.write_text(html.report(documents, title="one"))
    section = open_page(file.as_uri()).locator("#fragmentation")
    expect(section).to_contain_text(
        "0 more fit; unknown for 1 node, because the scheduler chooses the devices"
    )


def test_a_node_of_unknown_state_says_why(tmp_path: Path, open_page: Open) -> None:
    items = [item for item in guide_cluster() if item["metadata"]["name"] != "worker-2-numa-1"]
    page = open_page(report_of(items, tmp_path) + "#/node/worker-2")
    expect(page.locator(".notice")).to_contain_text("The state of this node is unknown: ")


@pytest.mark.parametrize("place", ["#/node/gone", "#/node/%E0%A4%A", "#nowhere"])
def test_addresses_that_lead_nowhere_do_no_harm(guide: str, open_page: Open, place: str) -> None:
    page = open_page(guide + place)
    expect(page.locator("main")).to_contain_text(
        "This node does not exist" if "node" in place else "Stuck pods"
    )
