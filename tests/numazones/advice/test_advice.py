"""Advice: what is named would be admitted, and is the least change of its kind."""

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numazones.advice.changes import Advice, Change, NodeContext, advise_on
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.admission import admit, remove
from numazones.kubelet.machine import Machine, NUMANode
from numazones.kubelet.node import Node
from numazones.kubelet.pod import Pod
from tests.conformance import scenario as scenarios
from tests.numazones.kubelet import building
from tests.places import DATA

REQUIRES_SSD = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
                ]
            }
        }
    }
}
SAMPLE = DATA / "conformance/sample.jsonl.gz"


def advised(node: Node, pod: Pod, around: NodeContext | None = None, **movable: str) -> list[Advice]:
    """Return the advice about a pod on a node whose pods have the names given by UID."""
    allocatable = {"cpu": 100_000, "memory": 1 << 40, "vendor/gpu": 9}
    pods = [
        ClusterPod(namespace, name, uid, node="worker", phase="Running", admission=_as_it_came(node, uid))
        for uid, (namespace, name) in ((uid, full.split("/")) for uid, full in movable.items())
    ]
    worker = ClusterNode("worker", allocatable=allocatable).with_pods(pods).with_state(node)
    wanted = ClusterPod("team", "wanted", "wanted", admission=pod)
    return list(advise_on(wanted, worker, around))


def _as_it_came(node: Node, uid: str) -> Pod:
    """A pod that asks for as many CPUs as it holds."""
    cpus = node.cpus.held_by(uid).bit_count()
    return building.pod(uid, building.container("main", cpus)) if cpus else building.pod(uid)


def with_pods(node: Node, **cpus: int) -> Node:
    for name, count in cpus.items():
        admission = admit(node, building.pod(name, building.container("main", count)))
        assert admission.admitted
        node = admission.node
    return node


def sentences(found: Iterable[Advice], change: Change) -> list[str]:
    return [item.sentence for item in found if item.change is change]


def test_the_largest_request_that_fits_is_named() -> None:
    node = with_pods(building.node(), first=4, second=5)
    found = advised(node, building.pod("p", building.container("main", 6)))
    assert sentences(found, Change.REQUEST) == ["request 3 CPUs instead of 6 in container main"]


def test_on_whole_cores_the_next_multiple_is_named() -> None:
    node = building.node(cpu_options={"full-pcpus-only": "true"})
    found = advised(node, building.pod("p", building.container("main", 3)))
    assert sentences(found, Change.REQUEST) == ["request 4 CPUs instead of 3 in container main"]


def test_less_memory_and_fewer_devices_are_named() -> None:
    node = building.node(devices=building.gpus((0,), (1,)))
    memory = advised(node, building.pod("p", building.container("main", 1, "20Gi")))
    assert sentences(memory, Change.REQUEST) == ["request 16Gi memory instead of 20Gi in container main"]
    gpus = advised(node, building.pod("q", building.container("main", 1, vendor_gpu="2")))
    assert sentences(gpus, Change.REQUEST) == ["request 1 vendor/gpu instead of 2 in container main"]


def test_looser_policy_or_scope_is_named_only_where_it_admits() -> None:
    node = building.node(scope="pod")
    pod = building.pod("p", building.container("one", 5), building.container("two", 5))
    found = advised(node, pod)
    assert sentences(found, Change.SETTING) == [
        "set topologyManagerScope: container on worker (on a drained node)",
        (
            "set topologyManagerPolicy: best-effort on worker, which gives up alignment for all pods there "
            "(on a drained node)"
        ),
    ]


def test_the_smallest_pods_whose_leaving_suffices_are_named() -> None:
    node = with_pods(building.node(), small=3, large=4, other=6)
    found = advised(
        node,
        building.pod("p", building.container("main", 3)),
        small="team/small",
        large="team/large",
        other="ops/other",
    )
    assert sentences(found, Change.EVICTION) == [
        "remove team/small, which holds 3 CPUs (no node would then admit its replacement)",
        "remove team/large, which holds 4 CPUs (no node would then admit its replacement)",
        "remove ops/other, which holds 6 CPUs (no node would then admit its replacement)",
    ]
    protected = advised(
        node,
        building.pod("p", building.container("main", 3)),
        NodeContext(objection=lambda _: "it is bare"),
        small="team/small",
    )
    assert [item.sentence for item in protected][-1] == (
        "remove team/small, which holds 3 CPUs (no plan does this: it is bare)"
    )


@pytest.mark.parametrize("count", [34, 70])
def test_kubelet_without_a_verdict_gets_no_advice(count: int) -> None:
    first, *_ = building.machine().numa_nodes
    cpus = building.machine(1).cpus
    machine = Machine(cpus, tuple(NUMANode(numa, first.memory) for numa in range(count)))
    node = building.node(machine, policy="none")
    assert advised(node, building.pod("p", building.container("main", 2)), NodeContext()) == []


def test_holders_of_the_missing_memory_are_named() -> None:
    holder = admit(building.node(), building.pod("holder", building.container("main", 1, "12Gi")))
    found = advised(
        holder.node, building.pod("p", building.container("main", 1, "15Gi")), holder="team/holder"
    )
    assert all("CPU" not in sentence for sentence in sentences(found, Change.EVICTION))


def test_pods_that_request_the_lacking_memory_are_named_as_holders() -> None:
    """Each pod has CPUs of its own on its NUMA node; the sum of their memory is what leaves too little."""
    body = {
        "metadata": {"name": "worker"},
        "status": {"allocatable": {"cpu": "16", "memory": "20Gi", "pods": "9"}},
    }

    def pod(name: str, cpus: int, memory: str) -> ClusterPod:
        spec = {"containers": [building.container("main", cpus, memory)]}
        metadata = {"namespace": "team", "name": name, "uid": name}
        return ClusterPod.from_api({"metadata": metadata, "spec": spec, "status": {"phase": "Running"}})

    large, small = pod("large", 4, "12Gi"), pod("small", 1, "2Gi")
    state = building.node()
    for each in (large, small):
        assert each.admission is not None
        state = admit(state, each.admission).node
    worker = ClusterNode.from_api(body).with_pods([large, small]).with_state(state)
    found = advise_on(pod("wanted", 1, "9Gi"), worker)
    assert sentences(found, Change.EVICTION) == [
        "remove team/large, which holds 12Gi memory (no node would then admit its replacement)"
    ]


@pytest.mark.parametrize(
    ("spec", "node", "cure"),
    [
        pytest.param(
            {"nodeSelector": {"zone": "a"}},
            {},
            "label the node (kubectl label node worker zone=a)",
            id="selector",
        ),
        pytest.param(
            {"nodeSelector": {"node-role.kubernetes.io/fast": "yes"}},
            {},
            "label the node (kubectl label node worker node-role.kubernetes.io/fast=yes)",
            id="selector of a label that administrators set",
        ),
        pytest.param(
            {"nodeSelector": {"zone": "a"}},
            {"metadata": {"name": "worker", "labels": {"zone": "b"}}},
            "the pod's node selector zone=a does not match: relax it",
            id="selector of another value, which puts the node where it is",
        ),
        pytest.param(
            {"nodeSelector": {"kubernetes.io/hostname": "worker-2", "zone": "a"}},
            {},
            "the pod's node selector kubernetes.io/hostname=worker-2,zone=a does not match: relax it",
            id="selector of a label that the kubelet sets",
        ),
        pytest.param(
            {"nodeSelector": {"topology.kubernetes.io/zone": "z"}, **REQUIRES_SSD},
            {},
            "the pod's node selector and node affinity do not match: relax them",
            id="selector and affinity",
        ),
        pytest.param(REQUIRES_SSD, {}, "the pod's node affinity does not match: relax it", id="affinity"),
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
    (found,) = advise_on(pod, worker)
    assert cure in found.sentence
    too_large = ClusterPod.from_api(
        {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [building.container("m", 15)], **spec}}
    )
    assert advise_on(too_large, worker) == ()


def test_following_advice_literally_gets_reference_pods_admitted() -> None:
    followed = followed_in(SAMPLE)
    assert min(followed[change] for change in (Change.REQUEST, Change.SETTING, Change.EVICTION)) > 5


def test_advice_on_a_fifth_of_all_reference_scenarios_is_admitted(shared: Path) -> None:
    followed = followed_in(shared / "conformance/dev.jsonl.gz", every=5)
    assert min(followed[change] for change in (Change.REQUEST, Change.SETTING, Change.EVICTION)) > 50


def followed_in(path: Path, *, every: int = 1) -> Counter[Change]:
    """Follow the advice in every so many scenarios of a file, and count it."""
    scenarios_ = map(json.loads, gzip.decompress(path.read_bytes()).splitlines()[::every])
    return sum((follow_advice_in(one) for one in scenarios_ if "invalid" not in one), Counter[Change]())


def follow_advice_in(scenario: Mapping[str, Any]) -> Counter[Change]:
    """Play a scenario, follow all advice about each pod that is rejected, and count it."""
    node, pods = scenarios.node(scenario), dict[str, Pod]()
    followed: Counter[Change] = Counter()
    for step in scenario["steps"]:
        if step["op"] == "remove":
            node = remove(node, step["uid"])
            continue
        pod = Pod.from_api(step["pod"])
        admission = admit(node, pod)
        if not admission.admitted:
            for item in advise_on(
                ClusterPod("team", pod.name, pod.uid, admission=pod), worker_of(node, pods)
            ):
                assert admitted_after(item, scenario, step["pod"], node, pods), (
                    scenario["id"],
                    item.sentence,
                )
                followed[item.change] += 1
        node, pods[pod.uid] = admission.node, pod
    return followed


def worker_of(node: Node, pods: Mapping[str, Pod]) -> ClusterNode:
    """A node with plenty for the scheduler, so that managers decide; its pods have their UIDs for names."""
    names = {"cpu", "memory", *node.memory.free, *node.kubelet.devices.resources}
    there = [
        ClusterPod("team", uid, uid, node="worker", phase="Running", admission=pods[uid]) for uid in node.pods
    ]
    allocatable = dict.fromkeys(names, 1 << 60)
    return ClusterNode("worker", allocatable=allocatable).with_pods(there).with_state(node)


ASK = re.compile(r"(?:request| and) (?P<wishes>.+?)(?: instead of \S+)? in container (?P<container>\S+)")
REMOVE = re.compile(r"remove team/(?P<uid>[^ ,]+)(?:, which holds .+)? \(no node would then admit .+\)")
BACK = re.compile(
    r"move team/(?P<uid>[^ ,]+)(?:, which holds .+,)? within worker "
    r"\(delete it; its replacement (?:gets .+ there|(?P<later>still fits once the waiting pod is placed))\)"
)
SET = re.compile(r"set (?P<name>\w+): (?P<value>\S+) on worker.* \(on a drained node\)")


def admitted_after(
    item: Advice,
    scenario: Mapping[str, Any],
    body: Mapping[str, Any],
    node: Node,
    pods: Mapping[str, Pod],
) -> bool:
    """Do what a piece of advice says to the pod as it was written, or to the node, and ask the kubelet."""
    if item.change is Change.REQUEST:
        assert not ASK.sub("", item.sentence)
        changed = deepcopy(dict(body))
        parts = (*changed["spec"].get("initContainers", ()), *changed["spec"]["containers"])
        for asked in ASK.finditer(item.sentence):
            (container,) = (part for part in parts if part["name"] == asked["container"])
            for wish in asked["wishes"].split(" and "):
                figure, noun = wish.split(" ")
                resource = "cpu" if noun in {"CPU", "CPUs"} else noun
                for amounts in container["resources"].values():
                    amounts[resource] = figure
        return admit(node, Pod.from_api(changed)).admitted
    pod = Pod.from_api(body)
    if removed := REMOVE.fullmatch(item.sentence):
        return admit(remove(node, removed["uid"]), pod).admitted
    if back := BACK.fullmatch(item.sentence):
        anew = replace(pods[back["uid"]], uid="anew")
        first, second = (pod, anew) if back["later"] else (anew, pod)
        admission = admit(remove(node, back["uid"]), first)
        return admission.admitted and admit(admission.node, second).admitted
    setting = SET.fullmatch(item.sentence)
    assert setting, item.sentence
    kubelet = {**scenario["kubelet"], setting["name"]: setting["value"]}
    return admit(scenarios.node({**scenario, "kubelet": kubelet}), pod).admitted
