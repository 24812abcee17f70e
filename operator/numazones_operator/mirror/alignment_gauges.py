"""Gauges of the alignment of what pods hold, by node and by owner.

There may be thousands of owners, so those with the most pods that are not aligned are shown by name, and all
others in one sum: the sum over owners is the sum over nodes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.core import GaugeMetricFamily

from numazones.alignment.alignable import Alignable
from numazones.alignment.owner_alignment import (
    AlignmentSum,
    OwnerName,
    merged,
    sums_by_owner,
    total,
    worst_first,
)
from numazones.alignment.pod_alignment import Alignment
from numazones.cluster.cluster import ClusterNode
from numazones_program.gauges import gauge

OTHERS = OwnerName("", "", "(others)")
"""Stands for the owners that are not shown by name; no object has such a name."""
_MAX_OWNERS = 50
"""Owners that are shown by name."""
_OWNER = ("namespace", "owner_kind", "owner")
_CHANGEABLE = tuple(one for one in Alignable if one is not Alignable.YES)
_OF_OWNERS = (
    "by owner (the Deployment rather than its ReplicaSet; empty for pods without an owner): the "
    f"{_MAX_OWNERS} owners with the most misaligned pods individually, and all others as {OTHERS.name}"
)


@dataclass(frozen=True, slots=True)
class NodeAlignment:
    """Alignment of what the pods of one node hold; empty if the holders are unknown."""

    known: bool = False
    owners: Mapping[OwnerName, AlignmentSum] = field(default_factory=dict)

    @classmethod
    def of(cls, node: ClusterNode) -> "NodeAlignment":
        """Work it out."""
        sums = sums_by_owner(node)
        return cls() if sums is None else cls(True, sums)

    @property
    def whole(self) -> AlignmentSum:
        """The sum of all its pods."""
        return total(self.owners.values())


def alignment_families(nodes: Mapping[str, NodeAlignment]) -> Iterator[GaugeMetricFamily]:
    """Yield the gauges; ``nodes``: by name."""
    known = {name: node.whole for name, node in nodes.items() if node.known}
    yield gauge(
        "numazones_node_pods",
        "Pods that hold resources of NUMA nodes, by alignment: aligned, remote or spanning.",
        ("node", "alignment"),
        (((name, kind), whole.pods.get(kind, 0)) for name, whole in known.items() for kind in Alignment),
    )
    yield gauge(
        "numazones_node_remote_cpus",
        "Exclusive CPUs that are not on the NUMA node with most of their container's resources.",
        ("node",),
        (((name,), whole.remote_cpus) for name, whole in known.items()),
    )
    owners = merged(item for node in nodes.values() for item in node.owners.items())
    yield from _owner_families(_shown(owners) if known else {})


def _shown(owners: Mapping[OwnerName, AlignmentSum]) -> dict[OwnerName, AlignmentSum]:
    """Return the owners that are shown by name, each with pods that are not aligned, and the others' sum."""
    shown = dict([item for item in worst_first(owners) if item[1].misaligned][:_MAX_OWNERS])
    return {**shown, OTHERS: total(one for name, one in owners.items() if name not in shown)}


def _owner_families(owners: Mapping[OwnerName, AlignmentSum]) -> Iterator[GaugeMetricFamily]:
    yield gauge(
        "numazones_owner_pods",
        f"Pods that hold resources of NUMA nodes, by alignment and {_OF_OWNERS}.",
        (*_OWNER, "alignment"),
        (((*owner, kind), one.pods.get(kind, 0)) for owner, one in owners.items() for kind in Alignment),
    )
    yield gauge(
        "numazones_owner_misaligned_pods",
        "Pods that are not aligned, by owner and by whether they could be aligned on their node: now, "
        "emptier (if other pods left), never, or unknown.",
        (*_OWNER, "alignable"),
        (
            ((*owner, could), one.alignable.get(could, 0))
            for owner, one in owners.items()
            for could in _CHANGEABLE
        ),
    )
    yield gauge(
        "numazones_owner_cpus",
        "Exclusive CPUs of pods, by owner and placement: local if they are on the NUMA node with most of "
        "their container's resources, otherwise remote.",
        (*_OWNER, "placement"),
        _placed({owner: (one.cpus, one.remote_cpus) for owner, one in owners.items()}),
    )
    yield gauge(
        "numazones_owner_promised_memory_bytes",
        "Memory and huge pages that Memory Managers assigned to pods, by owner and placement: local if "
        "they are on the NUMA node with most of their container's resources, otherwise remote.",
        (*_OWNER, "placement"),
        _placed({owner: (one.memory, one.remote_memory) for owner, one in owners.items()}),
    )


def _placed(amounts: Mapping[OwnerName, tuple[int, int]]) -> Iterable[tuple[tuple[str, ...], int]]:
    """Yield the labels and amounts of (all, remote)."""
    for owner, (all_of_it, remote) in amounts.items():
        yield (*owner, "local"), all_of_it - remote
        yield (*owner, "remote"), remote
