"""``aligned``: which running pods lie across NUMA nodes or far from their devices, the worst first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.printing.zone_figures import NodeWithoutFigures
from kubectl_numazones.reading.cluster import ClusterView, read, source_options
from kubectl_numazones.reading.selection import all_namespaces_option, selector_option
from kubectl_numazones.reading.source import Source
from numazones.alignment.alignable import Alignable, alignable
from numazones.alignment.owner_alignment import AlignmentSum, OwnerName, merged, worst_first
from numazones.alignment.pod_alignment import Alignment, PodAlignment, of_node, pcie_roots
from numazones.apimachinery.answer import or_left_out
from numazones.apimachinery.label_selector import LabelSelector
from numazones.apimachinery.quantity import format_bytes, format_rounded
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.wording import pluralize
from numazones_program.columns import Column

_POD = "Pod"
"""Stands for the kind of an owner where nobody owns a pod."""
_EPILOG = """
\b
Examples:
  kubectl numazones aligned            # pods of this namespace that are not aligned
  kubectl numazones aligned -A         # pods of all namespaces
  kubectl numazones aligned -A -o wide # include aligned pods
  kubectl numazones aligned -l app=db
  kubectl numazones aligned -A --by owner  # one line per Deployment, StatefulSet, Job, ...
  kubectl get nodes,numazones,pods -A -o json > dump.json && kubectl numazones aligned -A -f dump.json
"""


@dataclass(frozen=True, slots=True)
class HeldOfNuma:
    """Resources that a pod holds on one NUMA node."""

    numa: Annotated[int, "Id of the NUMA node, as Linux numbers it."]
    cpus: Annotated[int, "Exclusive CPUs."]
    memory: Annotated[
        int,
        "Assigned memory, hugepages included; memory assigned across several NUMA nodes is split "
        "equally between them.",
        format_bytes,
    ]


@dataclass(frozen=True, slots=True)
class NearDevices:
    """Devices that a container holds."""

    container: Annotated[str, "Name of the container."]
    resource: Annotated[str, "Name of the resource, as in pods' requests."]
    numas: Annotated[tuple[int, ...], "NUMA nodes near the devices."]
    pcie_roots: Annotated[
        tuple[str, ...],
        "PCIe root complexes of a claimed device; left out if its driver does not report them.",
        or_left_out,
    ]


@dataclass(frozen=True, slots=True)
class AlignedPod:
    """Alignment of what a pod holds."""

    namespace: Annotated[str, "Namespace of the pod."]
    name: Annotated[str, "Name of the pod."]
    node: Annotated[str, "Node that the pod runs on."]
    alignment: Annotated[Alignment, "aligned, remote or spanning: the worst of its containers."]
    numas: Annotated[tuple[int, ...], "NUMA nodes that the pod uses."]
    distance: Annotated[
        int | None,
        "Largest distance between two NUMA nodes of one container; null if there is only one, or "
        "if it is unknown.",
    ]
    remote_cpus: Annotated[
        int, "Exclusive CPUs that are not on the NUMA node where their container has the most CPUs."
    ]
    remote_memory: Annotated[
        int,
        "Assigned memory that is not on the NUMA node where its container has the most CPUs "
        "(without CPUs: the most memory).",
        format_bytes,
    ]
    remote: Annotated[
        tuple[str, ...], "Resources that are not all on that NUMA node: cpu, memory, names of devices."
    ]
    held: Annotated[list[HeldOfNuma], "What the pod holds, by NUMA node."]
    devices: Annotated[list[NearDevices], "Devices that the pod holds, by container."]
    alignable: Annotated[
        Alignable | None,
        "Whether the node could align the pod: yes (it is aligned), now, emptier (if other pods left) "
        "or never; null if unknown.",
    ]


@dataclass(frozen=True, slots=True)
class AlignedOwner:
    """Alignment of what the pods of an owner hold."""

    namespace: Annotated[str, "Namespace of the owner."]
    kind: Annotated[str, "Kind of the owner: Deployment, not ReplicaSet; Pod for a pod without an owner."]
    name: Annotated[str, "Name of the owner."]
    pods: Annotated[
        Mapping[Alignment, int],
        "Number of pods with exclusive resources, by alignment: aligned, remote, spanning.",
    ]
    alignable: Annotated[
        Mapping[Alignable, int],
        "Number of misaligned pods, by whether their nodes could align them: now, emptier, never, unknown.",
    ]
    cpus: Annotated[int, "Exclusive CPUs."]
    remote_cpus: Annotated[
        int, "Exclusive CPUs that are not on the NUMA node where their container has the most CPUs."
    ]
    memory: Annotated[int, "Assigned memory, hugepages included.", format_bytes]
    remote_memory: Annotated[
        int,
        "Assigned memory that is not on the NUMA node where its container has the most CPUs "
        "(without CPUs: the most memory).",
        format_bytes,
    ]


@dataclass(frozen=True, slots=True)
class AlignedDocument:
    """``aligned``: pods that hold CPUs, memory or devices exclusively, the worst first."""

    items: Annotated[list[AlignedPod], "One for each pod; empty with `--by owner`."]
    owners: Annotated[list[AlignedOwner], "One for each owner, the worst first; empty without `--by owner`."]
    unknown: Annotated[list[NodeWithoutFigures], "Nodes for which it is unknown who holds what, and why."]


@dataclass(frozen=True, slots=True)
class _Row:
    """One pod that holds something of NUMA nodes."""

    pod: ClusterPod
    found: PodAlignment
    alignable: Alignable
    """Whether its node could hold it aligned."""
    roots: Mapping[tuple[str, str], tuple[str, ...]]
    """(container, device) → PCIe root complexes."""

    @property
    def owner(self) -> OwnerName:
        """Return the owner of the pod; the pod itself if it has none."""
        owner = OwnerName.of(self.pod)
        return owner if owner.name else OwnerName(self.pod.namespace, _POD, self.pod.name)


@click.command("aligned", epilog=_EPILOG)
@selector_option("pods")
@all_namespaces_option
@click.option(
    "--by",
    type=click.Choice(["pod", "owner"]),
    default="pod",
    show_default=True,
    help="Print one line per pod, or one line per owner.",
)
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source, output: Output, *, everywhere: bool, selector: LabelSelector | None, by: str
) -> int:
    """List the running pods whose CPUs, memory or devices are on several NUMA nodes, the worst first.

    A pod is aligned if everything that each of its containers holds exclusively is on one NUMA node. A pod is
    spanning if its CPUs, its memory or its devices are on several NUMA nodes. A pod is remote if its CPUs are
    on one NUMA node, but its memory or a device is on another. ALIGNABLE says whether the pod's node could
    align it: now, with what is free; emptier, if other pods left; or never.

    --by owner counts the pods of each owner; the owners with the most misaligned pods come first.
    """
    seen = read(source)
    rows = [
        row
        for node in seen.situation.cluster.nodes.values()
        for row in _of_node(node)
        if (everywhere or row.pod.namespace == seen.namespace)
        and (selector is None or selector.matches(row.pod.labels))
    ]
    rows.sort(key=lambda row: (tuple(-part for part in row.found.badness), row.found.name))
    owners = merged((row.owner, AlignmentSum.of(row.found, row.alignable)) for row in rows)
    by_owner = dict(worst_first(owners)) if by == "owner" else {}
    unknown = _unknown(seen)
    if output.is_document:
        pods = [] if by_owner else [_pod_document(row) for row in rows]
        output.write(AlignedDocument(pods, [_owner_document(*item) for item in by_owner.items()], unknown))
        return 0
    wide = output.form == "wide"
    shown = [row for row in rows if wide or not row.found.aligned]
    named = {owner: one for owner, one in by_owner.items() if wide or one.misaligned}
    if output.form == "name":
        names = [f"{owner.kind.lower()}/{owner.name}" for owner in named]
        for name in names if by_owner else [f"pod/{row.pod.name}" for row in shown]:
            screen.echo(name)
        return 0
    if named:
        screen.print_table(_OWNERS, named.items(), wide=wide)
    elif shown and not by_owner:
        screen.print_table(_PODS, shown, wide=wide)
    screen.echo(_summary(rows, "" if everywhere else seen.namespace))
    for node, message in unknown:
        screen.echo(f"{node}: {message}")
    return 0


def _of_node(node: ClusterNode) -> Iterator[_Row]:
    for pod, found in of_node(node) or ():
        yield _Row(pod, found, alignable(node, pod, found), pcie_roots(node, pod))


def _unknown(seen: ClusterView) -> list[NodeWithoutFigures]:
    """Nodes for which it is unknown who holds what, and why."""
    found = []
    for node in seen.situation.cluster.nodes.values():
        if node.unknown is not None:
            found.append(NodeWithoutFigures(node.name, node.unknown.message))
        elif node.approximate or node.occupancy is None:
            found.append(NodeWithoutFigures(node.name, "only amounts are known, not which pods hold them"))
    return found


_PODS: tuple[Column[_Row], ...] = (
    Column("POD", lambda row: row.found.name),
    Column("NODE", lambda row: row.pod.node),
    Column("ALIGNMENT", lambda row: row.found.sentence),
    Column("CPUS", lambda row: _by_numa({numa: str(count) for numa, count in row.found.cpus.items()})),
    Column("MEMORY", lambda row: _by_numa(_rounded(row.found.memory)), expendable=1),
    Column("DEVICES", lambda row: _devices(row.found), expendable=2),
    Column("ALIGNABLE", lambda row: row.alignable),
    Column("PCIE ROOTS", lambda row: _roots(row.roots), wide=True),
)
_OWNERS: tuple[Column[tuple[OwnerName, AlignmentSum]], ...] = (
    Column("OWNER", lambda row: f"{row[0].namespace}/{row[0].kind.lower()}/{row[0].name}"),
    Column("PODS", lambda row: str(row[1].total), right=True),
    Column("SPANNING", lambda row: str(row[1].pods.get(Alignment.SPANNING, 0)), right=True),
    Column("REMOTE", lambda row: str(row[1].pods.get(Alignment.REMOTE, 0)), right=True),
    Column("REMOTE CPUS", lambda row: str(row[1].remote_cpus), right=True, expendable=2),
    Column("REMOTE MEMORY", lambda row: format_rounded(row[1].remote_memory), right=True, expendable=1),
    Column("ALIGNABLE", lambda row: _alignable(row[1].alignable)),
)


def _alignable(counts: Mapping[Alignable, int]) -> str:
    return ", ".join(f"{count} {could}" for could in Alignable if (count := counts.get(could, 0))) or "-"


def _rounded(memory: Mapping[int, int]) -> dict[int, str]:
    return {numa: format_rounded(size) for numa, size in memory.items()}


def _by_numa(amounts: dict[int, str]) -> str:
    return " ".join(f"{numa}:{amount}" for numa, amount in amounts.items()) or "-"


def _devices(found: PodAlignment) -> str:
    parts = [
        f"{resource}@{','.join(map(str, numas))}"
        for one in found.containers
        for resource, numas in one.devices.items()
    ]
    return " ".join(dict.fromkeys(parts)) or "-"


def _roots(roots: Mapping[tuple[str, str], tuple[str, ...]]) -> str:
    return " ".join(f"{device}@{','.join(found)}" for (_, device), found in roots.items()) or "-"


def _summary(rows: list[_Row], namespace: str) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    if not rows:
        return f"no running pod{where} holds CPUs, memory or devices exclusively"
    bad = [row.found for row in rows if not row.found.aligned]
    if not bad:
        return f"all {pluralize(len(rows), 'pod')}{where} with exclusive CPUs, memory or devices are aligned"
    cpus = sum(found.remote_cpus for found in bad)
    return (
        f"{len(bad)} of {pluralize(len(rows), 'pod')}{where} not aligned; {pluralize(cpus, 'CPU')} "
        "on a different NUMA node from the rest of their container"
    )


def _owner_document(owner: OwnerName, found: AlignmentSum) -> AlignedOwner:
    return AlignedOwner(
        *owner,
        {kind: found.pods.get(kind, 0) for kind in Alignment},
        {could: found.alignable.get(could, 0) for could in Alignable if could is not Alignable.YES},
        found.cpus,
        found.remote_cpus,
        found.memory,
        found.remote_memory,
    )


def _pod_document(row: _Row) -> AlignedPod:
    pod, found = row.pod, row.found
    numas = sorted({*found.cpus, *found.memory})
    return AlignedPod(
        pod.namespace,
        pod.name,
        pod.node,
        found.alignment,
        found.numas,
        found.distance,
        found.remote_cpus,
        found.remote_memory,
        found.remote,
        [HeldOfNuma(numa, found.cpus.get(numa, 0), found.memory.get(numa, 0)) for numa in numas],
        [
            NearDevices(one.name, resource, near, row.roots.get((one.name, resource), ()))
            for one in found.containers
            for resource, near in one.devices.items()
        ],
        None if row.alignable is Alignable.UNKNOWN else row.alignable,
    )
