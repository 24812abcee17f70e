"""What ``placement.py`` plays: machines with pods that come and go, drawn or recorded."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from kubectl_numazones.reading import recording
from numazones.apimachinery.resources import CPU, MEMORY
from numazones.cluster.cluster import ClusterNode, ClusterPod, Owner
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate, allocatable_memory, start_nodes
from numazones.whatif.random_numbers import RandomNumbers
from numazones.whatif.workload import Event, Group, Leaving, Recipe

CHURN, AWAY = 200, 8
MEAN_CPUS = 7.5
"""Of a pod with 1 to 14 CPUs."""
HUGE_PAGES = 32
_MILLI = 1000
_DEVICE_SHARE = 4
"""Every so many pods one asks for a device or huge pages, where there are any."""
_WITH_TWO_CONTAINERS = 3
POLICIES = {
    f"{policy}, {scope}": {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    for policy in ("single-numa-node", "restricted", "best-effort", "none")
    for scope in ("container", "pod")
    if (policy, scope) != ("none", "pod")  # without a policy there is no scope
}
AS_RECORDED = "as recorded"
"""The nodes' own settings."""


@dataclass(frozen=True)
class Machines:
    """Machines that belong together, and what arrives at them."""

    forms: tuple[tuple[str, int], ...]
    """(machine, how many)."""
    cpus: int
    """Of all machines, that pods may have."""
    scarce: str = ""
    """What every fourth pod asks for beside."""

    def templates(self) -> Iterator[NodeTemplate]:
        """Yield the nodes."""
        number = 0
        for text, count in self.forms:
            machine, huge, _ = text.partition(" huge")
            template = node_template(machine, name="node")
            if huge:
                template = with_huge_pages(template)
            for _ in range(count):
                yield replace(template, node=replace(template.node, name=f"node-{number:02}"))
                number += 1

    def workload(self, load: float) -> Recipe:
        """Pods that ask for a share of the CPUs while some are away."""
        number = round(load * self.cpus / MEAN_CPUS) + AWAY
        some = number // _DEVICE_SHARE if self.scarce else 0
        groups = [Group.parse(f"{number - some}xcpu=1-14,memory=2Gi")]
        if some:
            groups.append(Group.parse(f"{some}xcpu=1-14,memory=2Gi,{self.scarce}"))
        return Recipe(tuple(groups), mixed=True, churn=CHURN, away=AWAY)


def with_huge_pages(template: NodeTemplate) -> NodeTemplate:
    """Return the node with pages of 1Gi on each NUMA node."""
    nodes = tuple(one._replace(hugepages=((1 << 20, HUGE_PAGES),)) for one in template.machine.numa_nodes)
    machine = replace(template.machine, numa_nodes=nodes)
    amounts = {**template.node.allocatable, **allocatable_memory(machine, template.config)}
    return replace(template, machine=machine, node=replace(template.node, allocatable=amounts))


_TWO = "sockets=2,numa=2,cores=32,threads=1,memory=256Gi"
MACHINES = {
    "2 NUMA nodes": Machines(((_TWO, 10),), 310),
    "4 NUMA nodes (SNC2)": Machines((("sockets=2,numa=4,cores=64,threads=1,memory=512Gi", 5),), 315),
    "8 NUMA nodes": Machines((("sockets=2,numa=8,cores=128,threads=1,memory=512Gi", 3),), 381),
    "GPUs on one of 2 NUMA nodes": Machines(
        ((f"{_TWO},vendor.example/gpu@1=4", 10),), 310, "vendor.example/gpu=1"
    ),
    "GPUs on half of the machines": Machines(
        ((f"{_TWO},vendor.example/gpu=4", 5), (_TWO, 5)), 310, "vendor.example/gpu=1"
    ),
    "huge pages on half of the machines": Machines(
        ((f"{_TWO} huge", 5), (_TWO, 5)), 310, "hugepages-1Gi=4Gi"
    ),
}


def events_of(recipe: Recipe, random: RandomNumbers) -> list[Event]:
    """Return what happens in a run; every third pod has two containers."""
    return [
        event if isinstance(event, Leaving) else dressed(event, int(event.name.rpartition("-")[2]))
        for event in recipe.events(random)
    ]


def dressed(pod: ClusterPod, number: int) -> ClusterPod:
    """Return the pod as it arrives."""
    cpus = pod.requests[CPU] // _MILLI
    if cpus == 1 or number % _WITH_TWO_CONTAINERS:
        return running(pod)
    parts = (cpus // 2, cpus - cpus // 2)
    bodies = []
    for part, name in zip(parts, ("first", "second"), strict=True):
        amounts = {CPU: str(part), MEMORY: "1Gi"}
        if name == "first":
            amounts |= {
                key: str(amount)
                for key, amount in pod.requests.items()
                if key not in {CPU, MEMORY} and amount
            }
        bodies.append({"name": name, "resources": {"requests": amounts, "limits": amounts}})
    body = {
        "metadata": {"name": pod.name, "namespace": "default", "uid": pod.uid},
        "spec": {"containers": bodies},
    }
    return running(ClusterPod.from_api(body))


def running(pod: ClusterPod) -> ClusterPod:
    """Return the pod as it is once it was placed: plans move what runs, and what an owner replaces."""
    return replace(pod, phase="Running", ready=True, owners=(OWNER,))


OWNER = Owner("ReplicaSet", "pods", "pods", controller=True)


@dataclass(frozen=True)
class Combination:
    """Machines, a policy with its scope, and a load; of a recording, its directory."""

    machines: str
    policy: str
    load: float | None
    """Share of the CPUs that pods ask for; None: whatever was recorded."""
    recording: Path | None = None

    @property
    def key(self) -> tuple[Any, ...]:
        """What the rows of all ways share."""
        return (self.machines, self.policy, self.load)

    def nodes(self) -> list[ClusterNode]:
        """Return the nodes, started."""
        if self.recording is None:
            templates: Iterable[NodeTemplate] = MACHINES[self.machines].templates()
        else:
            nodes, _ = history(self.recording)
            templates = map(NodeTemplate.of, nodes)
        settings = {} if self.policy == AS_RECORDED else POLICIES[self.policy]
        return list(start_nodes(one.with_settings(settings) for one in templates))

    def events(self, seed: int, run: int) -> list[Event]:
        """Return what happens in a run; a recording has one run only.

        Of a recording all pods arrive, those too that nobody found a node for then.
        """
        if self.recording is None:
            return events_of(MACHINES[self.machines].workload(self.load or 0), RandomNumbers(seed, run))
        _, events = history(self.recording)
        return [one if isinstance(one, Leaving) else running(replace(one, node="")) for one in events]


@cache
def history(directory: Path) -> tuple[list[ClusterNode], list[Event]]:
    """Return a recording's nodes and all that happened: the same under each policy, and slow to read."""
    return recording.history(directory, unscheduled=True)


def drawn(machines: Iterable[str], loads: Sequence[float], policies: int) -> list[Combination]:
    """Return machines at loads, each under so many of the policies.

    Those differ from load to load and from machine to machine, so that with each kind of machine every policy
    comes equally often if there are as many loads as policies.
    """
    names = list(POLICIES)
    return [
        Combination(machine, names[(first + policies * number + _APART * other) % len(names)], load)
        for first, machine in enumerate(machines)
        for number, load in enumerate(loads)
        for other in range(policies)
    ]


_APART = 2
"""The next policy of a sample is that far on in the list, where a policy's scopes follow each other."""


def recorded(directories: Iterable[Path]) -> list[Combination]:
    """Return recorded histories, under the settings that the nodes had and under every policy.

    Raises:
        ValueError: two have one name.
    """
    found: dict[str, Path] = {}
    for directory in directories:
        if found.setdefault(directory.resolve().name, directory) != directory:
            raise ValueError(f"two recordings are called {directory.resolve().name}: rename one")
    return [
        Combination(name, policy, None, directory)
        for name, directory in found.items()
        for policy in (AS_RECORDED, *POLICIES)
    ]
