"""The guide's pictures of the page, written anew on request; nothing on them is cut off or illegible."""

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.sync_api import Page, expect

from checks.seen.page.browser import Open, serious
from kubectl_numazones.main import commands
from numazones.cluster.admission_gate import RELEASED
from tests.kubectl.best_effort_cluster import best_effort_cluster
from tests.kubectl.guide_cluster import guide_cluster
from tests.kubectl.small_cluster import pod_body
from tests.places import ROOT
from tests.support.page.clusters import TIME, dump

ASSETS = ROOT / "docs" / "assets"
REWRITE = "NUMAZONES_REWRITE_GOLDEN"
CLIPPED = """
() => [...document.querySelectorAll("#page *")]
  .filter((part) => !part.closest("thead") && part.clientWidth > 0)
  .filter((part) => part.scrollWidth > part.clientWidth + 1 && getComputedStyle(part).overflowX !== "visible")
  .map((part) => `${part.tagName} ${part.className}: ${part.textContent}`)
"""
"""What is wider than the part of the page that it is in, and cut off there."""


def fleet() -> list[dict[str, Any]]:
    """The guide's cluster as a pool of training nodes, other nodes beside it, and two pods on their way."""
    pool = {"pool": "training"}
    items = guide_cluster()
    for item in items:
        if item["kind"] == "Node":
            item["metadata"].setdefault("labels", {}).update(pool)
        if item["metadata"]["name"].startswith("trainer"):
            spec = item["spec"]["template"]["spec"] if item["kind"] == "ReplicaSet" else item["spec"]
            spec["nodeSelector"] = pool
    released = on_its_way("api-7", 4)
    released["metadata"]["annotations"] = {RELEASED: TIME}
    terms = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        for node in ("node-1", "node-4")
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    released["spec"]["affinity"] = {"nodeAffinity": required}
    nominated = on_its_way("batch-1", 2)
    nominated["status"]["nominatedNodeName"] = "node-3"
    return [*items, *dump(4, waiting=0, seed=3), released, nominated]


def on_its_way(name: str, cpus: int) -> dict[str, Any]:
    body = pod_body(name, cpus, phase="Pending")
    body["metadata"] = {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": TIME}
    return body


def calm() -> list[dict[str, Any]]:
    return dump(4, waiting=0, seed=3)


def report(items: list[dict[str, Any]], directory: Path) -> str:
    source, target = directory / "dump.json", directory / "report.html"
    source.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    command = ["report", "-f", str(source), "-o", str(target), "--title", "production"]
    assert CliRunner().invoke(commands, command, catch_exceptions=False).exit_code == 0
    return target.as_uri()


Scene = tuple[Callable[[], list[dict[str, Any]]], str, int, int, str]
SCENES: dict[str, Scene] = {
    "page-cluster": (fleet, "1 pod is stuck", 1440, 1120, "light"),
    "page-calm": (calm, "No pod is stuck", 1440, 800, "light"),
    "page-dark": (fleet, "1 pod is stuck", 1440, 1120, "dark"),
    "page-alignment": (best_effort_cluster, "No pod is stuck", 1440, 830, "light"),
    "page-phone": (fleet, "1 pod is stuck", 390, 844, "light"),
}


@pytest.mark.parametrize("name", SCENES)
def test_guides_pictures_show_an_unclipped_page(name: str, tmp_path: Path, open_page: Open) -> None:
    cluster, word, width, height, scheme = SCENES[name]
    page = open_page(
        report(cluster(), tmp_path),
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    expect(page.locator(".word")).to_have_text(word)
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.evaluate(CLIPPED) == []
    assert serious(page) == []
    kept(page, name)
    assert size_of(ASSETS / f"{name}.png") == (width, height)


def test_a_plan_is_played_in_the_guides_picture(tmp_path: Path, open_page: Open) -> None:
    page = open_page(report(fleet(), tmp_path), viewport={"width": 1040, "height": 800})
    plan = page.locator("#plans article")
    expect(plan).to_contain_text("team/trainer-2 fits on worker-1 NUMA 0")
    if REWRITE in os.environ:
        plan.screenshot(path=ASSETS / "page-plan.png")
    assert size_of(ASSETS / "page-plan.png")[0] > 900


def kept(page: Page, name: str) -> None:
    """Write what the screen shows, if that is asked for."""
    if REWRITE in os.environ:
        page.screenshot(path=ASSETS / f"{name}.png")


def size_of(picture: Path) -> tuple[int, int]:
    """Width and height of a PNG."""
    width, height = struct.unpack(">II", picture.read_bytes()[16:24])
    return width, height
