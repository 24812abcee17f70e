"""The demo's story, read from what it prints and records."""

import re
from pathlib import Path

from tests.places import ROOT

DEMO = ROOT / "docs" / "assets" / "demo.svg"
"""The recording that the README shows."""


def check(text: str, recorded: Path) -> None:
    """Check that the story was told to its end, and that it is still the one of the README's recording.

    Args:
        text: what the demo printed.
        recorded: what it recorded.
    """
    acts = (
        "Pods were created and deleted",
        "A ReplicaSet needs ",
        "kubectl numazones why rs/trainer -n team",
        "With the gate numazones.io/admission",
        "A RebalancePolicy finds the fewest evictions that make room",
        "The gate opened, and trainer-",
        "The same pods with schedulerName: numazones",
    )
    assert [text.index(act) for act in acts] == sorted(text.index(act) for act in acts)
    assert re.search(r"^Live page on http://127\.0\.0\.1:\d+/$", text, re.MULTILINE)
    assert len(re.findall(r"^node-\d-numa-\d  \S", text, re.MULTILINE)) == 18
    assert len(re.findall(r"^  trainer-\w+  node-1  Failed  TopologyAffinityError$", text, re.MULTILINE)) >= 3
    assert "The kubelet: Pod was rejected: Resources cannot be allocated with Topology locality" in text
    assert re.search(r"needs \d+ exclusive CPUs on one NUMA node; at most \d+ (?:is|are) free", text)
    assert "What would help:" in text
    assert re.search(r"shop/web-\w+: from node-1 \(NUMA node \d\) to node-\d \(NUMA node \d\); ", text)
    assert re.search(r"make-room-\w+ .* Succeeded ", text)
    assert re.search(r"trainer-\w+ +Admissible .* Admitted", text)
    ((right, made),) = re.findall(r"(\d+) of (\d+) predictions came true", text)
    assert int(made) >= int(right) > 40
    compared = _rows_of(text.split("the NUMA-aware scheduler\n")[1])
    assert compared["random pods rejected by kubelets"][1] == "0"
    assert compared["replicas of web and batch rejected"][1] == "0"
    ((big, rejected),) = [
        (what, row) for what, row in compared.items() if re.fullmatch(r"replicas of \d+ CPUs rejected", what)
    ]
    assert rejected == ["at least 3", "0"]
    assert compared[big.replace("rejected", "that run")] == ["0", "1"]
    for column in (0, 1):
        decided = [int(row[column]) for what, row in compared.items() if what.startswith("random pods")]
        assert sum(decided) == 50
    for model in ("kubelet", "koordinator", "topology-aware"):
        assert re.search(rf"^{model} +\d+ +\d+$", text, re.MULTILINE)
    assert "Ctrl-C" not in text
    assert _titles(recorded) == _titles(DEMO)


def _rows_of(text: str) -> dict[str, list[str]]:
    """A table with titles at the left."""
    lines = (re.split(r" {2,}", line) for line in text.splitlines())
    return {what: values for what, *values in lines if what and values}


def _titles(recorded: Path) -> list[str]:
    """The titles of a recording's pages, without what differs from one time to the next."""
    found = re.findall(r'<text class="title"[^>]*>([^<]*)<', recorded.read_text())
    return [re.sub(r"-\w{5}\b|\d+", "*", title) for title in found]
