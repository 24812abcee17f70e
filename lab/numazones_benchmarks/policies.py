"""Measure how fast the placement models decide: decisions per second, and the goals for large nodes.

A node of 2, 4 and 8 NUMA nodes with 32 CPUs each is filled with small pods of all QoS classes, each decided
on the node that the one before left. Goals: 1,000 containers on 8 NUMA nodes placed by topology-aware in a
second, and one pod tried on 5,000 Koordinator nodes, no two of them filled alike, in a second. What counts is
the processor's time, so that a busy machine does not tell another tale.

    .venv/bin/python -m numazones_benchmarks.policies --json
"""

import argparse
import json
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numazones.kubelet import admission as kubelet
from numazones.kubelet.config import KubeletConfiguration
from numazones.kubelet.machine import CPU, Machine, NUMANode
from numazones.kubelet.node import Node as KubeletNode
from numazones.kubelet.pod import Pod
from numazones_koordinator import admission as koordinator
from numazones_koordinator.annotations import NUMA_TOPOLOGY_SPEC, QOS_CLASS
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_simulated_models.koordinator.koordlet import topology_of
from numazones_topology_aware import admission as topology_aware
from numazones_topology_aware.config import DEFAULTS, Configuration
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node as TopologyAwareNode

GIB = 1 << 30
SIZES = (2, 4, 8)
CPUS = 32  # per NUMA node
CONTAINERS = 1000
NODES = 5000
GOALS = {"topology_aware_1000_containers_seconds": 1.0, "koordinator_5000_nodes_seconds": 1.0}


def machine(numas: int) -> Machine:
    """Two sockets, two threads a core, second threads numbered last."""
    cores = numas * CPUS // 2
    return Machine(
        tuple(
            CPU(thread * cores + core, core, core * 2 // cores, 0, core * numas // cores)
            for core in range(cores)
            for thread in range(2)
        ),
        tuple(
            NUMANode(
                one,
                128 * GIB,
                distances=tuple(
                    10 if other == one else 12 if other * 2 // numas == one * 2 // numas else 21
                    for other in range(numas)
                ),
            )
            for one in range(numas)
        ),
    )


KOORDINATED = {
    "labels": {QOS_CLASS: "LSR"},
    "annotations": {NUMA_TOPOLOGY_SPEC: json.dumps({"numaTopologyPolicy": "SingleNUMANode"})},
}


def pods(count: int) -> list[Pod]:
    """Small pods of all QoS classes; Koordinator gives those of whole CPUs a policy and CPUs of their own."""
    draw = random.Random(1)
    kinds: list[dict[str, Any]] = [
        {"limits": {"cpu": "100m", "memory": "64Mi"}},
        {"limits": {"cpu": "250m", "memory": "64Mi"}},
        {"limits": {"cpu": "1", "memory": "256Mi"}},
        {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}},
        {},
    ]
    weights = (30, 20, 6, 30, 14)
    return [
        one_pod(f"u{number}", resources, KOORDINATED if resources is kinds[2] else {})
        for number, resources in enumerate(draw.choices(kinds, weights, k=count))
    ]


def one_pod(uid: str, resources: dict[str, Any], marks: Mapping[str, Any] = KOORDINATED) -> Pod:
    """A pod, by default one to which Koordinator gives CPUs of its own on one NUMA node."""
    metadata = {"name": uid, "namespace": "default", "uid": uid, **marks}
    return Pod.from_manifest(
        {"metadata": metadata, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    )


def placed(admit: Callable[[Any, Pod], Any], node: object, waiting: Sequence[Pod]) -> int:
    """Decide on pods, each on the node that the one before left; returns how many were admitted."""
    admitted = 0
    for pod in waiting:
        admission = admit(node, pod)
        node = admission.node
        admitted += admission.admitted
    return admitted


def place_by_kubelet(numas: int, waiting: Sequence[Pod]) -> int:
    """Decide on pods as a kubelet; returns how many were admitted."""
    config = KubeletConfiguration.from_api(
        {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "best-effort"}
    )
    node = KubeletNode.fresh(machine(numas), config)
    return placed(kubelet.admit, node, waiting)


def place_by_topology_aware(numas: int, waiting: Sequence[Pod]) -> int:
    """Decide on pods as the NRI topology-aware policy; returns how many were admitted."""
    config = Configuration.from_spec({**DEFAULTS, "reservedResources": {"cpu": "750m"}})
    node = TopologyAwareNode.fresh(Hardware.of(machine(numas)), config)
    return placed(topology_aware.admit, node, waiting)


def koordinator_node(numas: int) -> KoordinatorNode:
    """Return the objects that koordlet publishes for a machine."""
    allocatable = {"cpu": str(CPUS * numas), "memory": f"{128 * numas}Gi"}
    return KoordinatorNode.read({"status": {"allocatable": allocatable}}, topology_of("node", machine(numas)))


def place_by_koordinator(numas: int, waiting: Sequence[Pod]) -> int:
    """Decide on pods as koord-scheduler; returns how many were admitted."""
    node = koordinator_node(numas)
    return placed(koordinator.admit, node, waiting)


def try_on_koordinator_nodes(count: int) -> float:
    """Seconds to try one pod with CPUs of its own on nodes of 2 NUMA nodes, no two of them filled alike."""
    draw = random.Random(count)
    fresh = koordinator_node(2)
    whole = {"limits": {"cpu": "4", "memory": "8Gi"}}
    nodes = []
    for number in range(count):
        node = fresh
        for index in range(2):
            asked = {"limits": {"cpu": str(draw.randrange(1, 13)), "memory": f"{draw.randrange(1, 90000)}Mi"}}
            node = koordinator.admit(node, one_pod(f"{number}-{index}", asked)).node
        nodes.append(node)
    start = time.process_time()
    for admission in koordinator.admit_each(nodes, one_pod("asked", whole)):
        _ = admission.admitted
    return time.process_time() - start


MODELS: dict[str, Callable[[int, Sequence[Pod]], int]] = {
    "kubelet": place_by_kubelet,
    "koordinator": place_by_koordinator,
    "topology-aware": place_by_topology_aware,
}


def measure(place: Callable[[int, Sequence[Pod]], int], numas: int, count: int, runs: int) -> dict[str, Any]:
    """The fastest of some runs."""
    waiting = pods(count)
    taken = []
    admitted = 0
    for _ in range(runs):
        start = time.process_time()
        admitted = place(numas, waiting)
        taken.append(time.process_time() - start)
    best = min(taken)
    return {
        "containers": count,
        "admitted": admitted,
        "seconds": round(best, 4),
        "perSecond": round(count / best),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--containers", type=int, default=CONTAINERS, help="containers on 8 NUMA nodes (%(default)s)"
    )
    parser.add_argument("--nodes", type=int, default=NODES, help="Koordinator nodes (%(default)s)")
    parser.add_argument("--runs", type=int, default=3, help="runs; the fastest counts (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    models = {
        name: {
            numas: measure(place, numas, max(1, options.containers * numas // SIZES[-1]), options.runs)
            for numas in SIZES
        }
        for name, place in MODELS.items()
    }
    figures: dict[str, Any] = {
        "models": models,
        "topology_aware_1000_containers_seconds": models["topology-aware"][SIZES[-1]]["seconds"],
        "koordinator_5000_nodes_seconds": round(
            min(try_on_koordinator_nodes(options.nodes) for _ in range(options.runs)), 4
        ),
        "goals": GOALS,
    }
    figures["missed"] = [name for name, goal in GOALS.items() if figures[name] > goal]
    if options.json:
        print(json.dumps(figures, indent=1))
    else:
        print(f"{'model':16} {'NUMA nodes':>10} {'containers':>10} {'admitted':>9} {'per second':>10}")
        for name, sizes in models.items():
            for numas, one in sizes.items():
                counts = f"{one['containers']:>10} {one['admitted']:>9} {one['perSecond']:>10}"
                print(f"{name:16} {numas:>10} {counts}")
        tried = figures["koordinator_5000_nodes_seconds"]
        print(f"one pod tried on {options.nodes} Koordinator nodes: {tried} s")
    return 1 if figures["missed"] else 0


if __name__ == "__main__":
    sys.exit(main())
