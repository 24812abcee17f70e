"""Kubelet policies, Koordinator and NRI's topology-aware policy on the same machines, with the same pods.

Two machines, three runs: all pods arrive in random order, then sixty times one leaves and the one that left
before comes back. Figures are means over the runs; what they mean tells docs/guides/choose-a-policy.md.

    python -m numazones_benchmarks.compare_policies sockets=2,numa=4,cores=64,memory=512Gi 40xcpu=2-12
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from numazones import cpuset
from numazones.apimachinery.quantity import format_milli
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.errors import NumazonesError
from numazones.kubelet.machine import Machine
from numazones.placement.fragmentation import Shape
from numazones.whatif import machine_type
from numazones.whatif.experiment import Experiment, Variant, make_runs
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.trial import UNSCHEDULABLE, Outcome
from numazones.whatif.workload import Event, Group, Leaving, Recipe
from numazones_koordinator.annotations import NODE_RESERVATION, QOS_CLASS
from numazones_koordinator.node import Node as KoordinatorNode
from numazones_koordinator.placement import KoordinatorPlacement
from numazones_koordinator.simulation.koordlet import topology_of
from numazones_topology_aware.config import DEFAULTS, Configuration
from numazones_topology_aware.hardware import Hardware
from numazones_topology_aware.node import Node as TopologyAwareNode
from numazones_topology_aware.node_placement import TopologyAwarePlacement

NODES, RUNS, CHURN = 2, 3, 60
KUBELETS = (
    {"topologyManagerPolicy": "none"},
    {"topologyManagerPolicy": "best-effort"},
    {"topologyManagerPolicy": "best-effort", "cpuManagerPolicyOptions.distribute-cpus-across-numa": "true"},
    {"topologyManagerPolicy": "restricted"},
    {"topologyManagerPolicy": "single-numa-node"},
    {"topologyManagerPolicy": "single-numa-node", "cpuManagerPolicyOptions.full-pcpus-only": "true"},
)
KOORDINATOR = ("", "BestEffort", "Restricted", "SingleNUMANode")


@dataclass(frozen=True)
class Marked:
    """Pods as Koordinator wants them marked: with CPUs of their own. Nobody else looks at the label."""

    recipe: Recipe

    def events(self, random: RandomNumbers) -> Iterator[Event]:
        """Yield what happens in one run."""
        for event in self.recipe.events(random):
            yield event if isinstance(event, Leaving) else marked(event)


def marked(pod: ClusterPod) -> ClusterPod:
    """The pod with the label."""
    if pod.admission is None:
        return pod
    return replace(pod, admission=replace(pod.admission, labels=((QOS_CLASS, "LSR"),)))


def koordinator(machine: Machine, policy: str, node: ClusterNode) -> ClusterNode:
    """The node with Koordinator's scheduler: what koordlet and the administrator write on it."""
    topology = topology_of(node.name, machine)
    reserved = cpuset.format(machine_type.first_core(machine))
    topology["metadata"]["annotations"][NODE_RESERVATION] = json.dumps({"reservedCPUs": reserved})
    body = {
        "metadata": {
            "name": node.name,
            "labels": {"node.koordinator.sh/numa-topology-policy": policy} if policy else {},
        },
        "status": {
            "allocatable": {
                "cpu": format_milli(node.allocatable["cpu"]),
                "memory": str(node.allocatable["memory"]),
            }
        },
    }
    return node.with_placement(KoordinatorPlacement(KoordinatorNode.read(body, topology)))


def topology_aware(machine: Machine, node: ClusterNode) -> ClusterNode:
    """The node with the NRI plugin, configured as it is installed."""
    reserved = {"cpu": f"cpuset:{cpuset.format(machine_type.first_core(machine))}"}
    config = Configuration.from_spec({**DEFAULTS, "reservedResources": reserved})
    return node.with_placement(TopologyAwarePlacement(TopologyAwareNode.fresh(Hardware.of(machine), config)))


def variants(machine: str) -> Iterator[tuple[str, Variant]]:
    """Yield (name, nodes) for everything that is compared."""
    names = [f"node-{number}" for number in range(NODES)]
    for given in KUBELETS:
        options = [key.rpartition(".")[2] for key in given if "." in key]
        name = ", ".join(["kubelet " + given["topologyManagerPolicy"], *options])
        kubelets = tuple(machine_type.node_template(machine, name=one).with_settings(given) for one in names)
        yield name, Variant((("model", name),), kubelets)
    plain = [machine_type.node_template(machine, name=one) for one in names]
    for policy in KOORDINATOR:
        name = f"Koordinator {policy or 'without a policy'}"
        yield (
            name,
            Variant((("model", name),), tuple(koordinator(one.machine, policy, one.node) for one in plain)),
        )
    name = "NRI topology-aware"
    yield name, Variant((("model", name),), tuple(topology_aware(one.machine, one.node) for one in plain))


def compare(machine: str, groups: Sequence[str]) -> dict[str, dict[str, float]]:
    """Return name → column → mean over the runs."""
    recipe = Recipe(tuple(map(Group.parse, groups)), mixed=True, churn=CHURN)
    names, compared = zip(*variants(machine), strict=True)
    largest = max(pod.requests["cpu"] // 1000 for pod in recipe.examples())
    experiment = Experiment(compared, Marked(recipe), seed=1, shape=Shape.parse(f"cpu={largest}"))
    runs = make_runs(experiment, range(RUNS))
    return {
        name: {
            column: round(fmean(columns(run[index])[column] for run in runs), 1)
            for column in columns(runs[0][index])
        }
        for index, name in enumerate(names)
    }


def columns(outcome: Outcome) -> dict[str, int]:
    """What is shown of one run."""
    waiting = dict(outcome.rejected).get(UNSCHEDULABLE, 0)
    return {
        "admitted": outcome.admitted,
        "aligned": outcome.admitted - outcome.crossing,
        "spanning": outcome.crossing,
        "refused": outcome.arrived - outcome.admitted - waiting,
        "waiting": waiting,
        "stranded": outcome.stranded or 0,
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("machine", help="such as sockets=2,numa=4,cores=64,memory=512Gi")
    parser.add_argument("pods", nargs="+", help="groups of pods, such as 30xcpu=2-12,memory=8Gi")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    try:
        figures = compare(options.machine, options.pods)
    except NumazonesError as error:
        parser.error(str(error))
    if options.json:
        print(json.dumps(figures, indent=1))
        return 0
    print(f"{'':50}" + "".join(f"{column:>9}" for column in next(iter(figures.values()))))
    for name, row in figures.items():
        print(f"{name:50}" + "".join(f"{mean:9.1f}" for mean in row.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
