"""Time how long a browser takes to show a cluster: from opening a report until every node has its tile.

The nodes are simulated ones of all kinds, filled with pods at random. The browser is the chromium on PATH.

    .venv/bin/python -m numazones_benchmarks.page --nodes 1000 --json
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.admission import admit
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from numazones.placement.fragmentation import Shape
from numazones.prediction.room import FittingPods
from numazones_page import html
from numazones_page.documents import cluster_document, node_documents
from numazones_simulator import node_kinds
from numazones_simulator.workload import PodStream

GOALS = {"rendered_seconds": 2.0}
FILLINGS = 60
"""Different nodes; beyond that they repeat under other names."""
PODS = 25
RUNS = 5


def filled(state: Node, seed: int) -> ClusterNode:
    """A node to which some pods came, of which it admitted those that fitted."""
    arriving = PodStream(random.Random(seed).randrange(1 << 30)).pods()
    pods = []
    for number in range(PODS):
        body = next(arriving)
        body["metadata"]["uid"] = f"uid-{number}"
        try:
            admission = admit(state, Pod.from_api(body))
        except NumazonesError:  # a feature that this kubelet lacks
            continue
        state = admission.node
        if admission.admitted:
            pods.append(ClusterPod.from_api(body))
    return ClusterNode("").with_state(state).with_pods(pods)


def page_of(count: int) -> tuple[str, float]:
    """A report on so many nodes, and the seconds that its documents took."""
    shapes = tuple(map(Shape.parse, ("cpu=4", "cpu=8", "cpu=16")))
    specs = node_kinds.mixed(count)
    nodes = [filled(spec.empty_node(), number) for number, spec in enumerate(specs[:FILLINGS])]
    started = time.perf_counter()
    fitting = FittingPods()
    documents = cluster_document(source="benchmark", shapes=shapes)
    for number, spec in enumerate(specs):
        for key, document in node_documents(nodes[number % FILLINGS], shapes, fitting).items():
            documents[f"node/{spec.name}" if key == "node/" else key] = document
    return html.report(documents, title="benchmark"), time.perf_counter() - started


def measure(count: int, chromium: str) -> dict[str, Any]:
    """Open the page some times; the median counts."""
    page, documents_seconds = page_of(count)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium)
        taken = []
        for _ in range(RUNS):
            tab = browser.new_page(viewport={"width": 1280, "height": 1000})
            tab.goto(file.as_uri())
            # Two frames later everything has been laid out and painted.
            taken.append(
                tab.evaluate(
                    "new Promise(done => requestAnimationFrame(() => requestAnimationFrame("
                    "() => done(performance.now()))))"
                )
            )
            tiles = tab.locator("a.node").count()
            tab.close()
        browser.close()
    return {
        "nodes": count,
        "tiles": tiles,
        "bytes": len(page.encode()),
        "documents_seconds": documents_seconds,
        "rendered_seconds": sorted(taken)[RUNS // 2] / 1000,
    }


def main() -> int:
    """Parse the arguments, run, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        parser.error("there is no chromium on PATH: apt-get install chromium")
    figures = measure(options.nodes, chromium)
    figures |= {"goals": GOALS, "missed": [name for name, goal in GOALS.items() if figures[name] > goal]}
    if options.json:
        print(json.dumps(figures, indent=2))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value}")
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
