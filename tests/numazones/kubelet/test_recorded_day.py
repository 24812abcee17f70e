"""A day of four real kubelets (1.36.2), replayed: every decision of theirs is predicted.

Every pod is put to the node as a whole: one that the managers admit may still be rejected with OutOfcpu,
in the kubelet's words and with its figures. Where the kubelet picked devices at random, its pick is
offered to the model as the plugin's preference: taking it shows that it was open to it.
"""

import gzip
import json
from pathlib import Path

import pytest

from tests.numazones.kubelet.recorded_day import day, operations
from tests.places import DATA

SAMPLES = DATA

# All outcomes of the day per node; nothing else happened there. The three pods that stayed
# Unschedulable never reached a kubelet.
OUTCOMES = {
    "rig-a": {"admitted": 27, "TopologyAffinityError": 5, "UnexpectedAdmissionError": 1, "admitted again": 8},
    "rig-b": {"admitted": 32, "TopologyAffinityError": 8, "UnexpectedAdmissionError": 5, "OutOfcpu": 1},
    "rig-c": {"admitted": 28, "SMTAlignmentError": 7, "UnexpectedAdmissionError": 2},
    "rig-d": {
        "admitted": 52,
        "TopologyAffinityError": 9,
        "UnexpectedAdmissionError": 1,
        "admitted again": 13,
    },
}


def test_a_recorded_day_of_one_kubelet_is_predicted(tmp_path: Path) -> None:
    recorded = json.loads(gzip.decompress((SAMPLES / "conformance/recorded-day.json.gz").read_bytes()))
    folder = SAMPLES / "recordings/one-node" / recorded["node"]
    replayed = day(folder, recorded["plugins"], tmp_path, "v1.36.2")
    for operation in recorded["operations"]:
        replayed.play(operation)
    assert replayed.outcomes == OUTCOMES["rig-b"]


@pytest.mark.parametrize("name", OUTCOMES)
def test_every_recorded_decision_is_predicted(name: str, shared: Path, tmp_path: Path) -> None:
    folder = shared / "recordings/four-nodes" / name
    version = json.loads((folder / "node.json").read_text())["status"]["nodeInfo"]["kubeletVersion"]
    plugins = json.loads((folder / "device_plugins.json").read_text())
    replayed = day(folder, plugins, tmp_path, version)
    with (folder.parent / "replay.jsonl").open() as lines:
        for operation in operations(lines, name):
            replayed.play(operation)
    assert replayed.outcomes == OUTCOMES[name]
