"""Advice: what is named would be admitted, and is the least change of its kind."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from numazones import advice
from numazones.advice import Change
from numazones.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import Admission, admit
from numazones.kubelet.node import Node
from numazones.pod import Pod
from tests.conformance import scenario as scenarios

from .kubelet import building

SAMPLE = Path(__file__).parents[1] / "data/conformance/sample.jsonl.gz"


def rejected(node: Node, pod: Pod) -> Admission:
    admission = admit(node, pod)
    assert not admission.admitted
    return admission


def with_pods(node: Node, **cpus: int) -> Node:
    for name, count in cpus.items():
        admission = admit(node, building.pod(name, building.container("main", count)))
        assert admission.admitted
        node = admission.node
    return node


def sentences(found: tuple[advice.Advice, ...], change: Change) -> list[str]:
    return [item.sentence for item in found if item.change is change]


def test_the_largest_request_that_fits_is_named() -> None:
    node = with_pods(building.node(), first=4, second=5)
    found = advice.advise(rejected(node, building.pod("p", building.container("main", 6))), {})
    assert sentences(found, Change.REQUEST) == ["ask for 3 CPUs instead of 6 in container main"]


def test_on_whole_cores_the_next_multiple_is_named() -> None:
    node = building.node(cpu_options={"full-pcpus-only": "true"})
    found = advice.advise(rejected(node, building.pod("p", building.container("main", 3))), {})
    assert sentences(found, Change.REQUEST) == ["ask for 4 CPUs instead of 3 in container main"]


def test_less_memory_and_fewer_devices_are_named() -> None:
    node = building.node(devices=building.gpus((0,), (1,)))
    memory = rejected(node, building.pod("p", building.container("main", 1, "20Gi")))
    assert sentences(advice.advise(memory, {}), Change.REQUEST) == [
        "ask for 16Gi memory instead of 20Gi in container main"
    ]
    gpus = rejected(node, building.pod("q", building.container("main", 1, vendor_gpu="2")))
    assert sentences(advice.advise(gpus, {}), Change.REQUEST) == [
        "ask for 1 vendor/gpu instead of 2 in container main"
    ]


def test_a_looser_policy_or_scope_is_named_only_where_it_admits() -> None:
    node = building.node(scope="pod")
    pod = building.pod("p", building.container("one", 5), building.container("two", 5))
    found = advice.advise(rejected(node, pod), {})
    assert sentences(found, Change.SETTING) == [
        "set topologyManagerScope: container on the node",
        "set topologyManagerPolicy: best-effort on the node",
    ]


def test_the_smallest_pods_whose_leaving_suffices_are_named() -> None:
    node = with_pods(building.node(), small=3, large=4, other=6)
    found = advice.advise(
        rejected(node, building.pod("p", building.container("main", 3))),
        {"small": "team/small", "large": "team/large"},
    )
    assert sentences(found, Change.EVICTION) == [
        "move team/small away, which holds 3 CPUs",
        "move team/large away, which holds 4 CPUs",
    ]


@pytest.mark.parametrize(
    ("spec", "node", "cure"),
    [
        pytest.param({"nodeSelector": {"zone": "a"}}, {}, "label the node", id="selector"),
        pytest.param({}, {"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}, "taint", id="taint"),
        pytest.param({}, {"spec": {"unschedulable": True}}, "kubectl uncordon", id="cordon"),
    ],
)
def test_what_keeps_the_scheduler_away_is_named_with_its_cure(
    spec: dict[str, Any], node: dict[str, Any], cure: str
) -> None:
    body = {
        "metadata": {"name": "worker"},
        "status": {"allocatable": {"cpu": "16", "memory": "32Gi", "pods": "9"}},
    }
    worker = ClusterNode.from_api({**body, **node}).with_state(building.node())
    pod = ClusterPod.from_api(
        {
            "metadata": {"name": "p", "uid": "p"},
            "spec": {"containers": [building.container("main", 4)], **spec},
        }
    )
    found = advice.advise_on_scheduling(pod, worker)
    assert found is not None
    assert cure in found.sentence
    too_large = ClusterPod.from_api(
        {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [building.container("m", 15)], **spec}}
    )
    assert advice.advise_on_scheduling(too_large, worker) is None


def test_all_advice_on_reference_scenarios_is_admitted() -> None:
    """The law: whatever is named, the model admits; the figures are those of the proof."""
    advised = 0
    for line in gzip.decompress(SAMPLE.read_bytes()).splitlines():
        scenario = json.loads(line)
        if "invalid" in scenario:
            continue
        node = scenarios.node(scenario)
        for step in scenario["steps"]:
            if step["op"] != "admit":
                continue
            admission = admit(node, Pod.from_api(step["pod"]))
            if not admission.admitted:
                names = {uid: uid for uid in node.pods}
                for item in advice.advise(admission, names):
                    advised += 1
                    assert item.proof.admitted, (scenario["id"], item.sentence)
                    if item.change is Change.REQUEST:
                        assert item.proof.before is admission.before
            node = admission.node
    assert advised > 50
