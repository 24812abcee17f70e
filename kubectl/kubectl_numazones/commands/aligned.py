"""``aligned``: which running pods lie across NUMA nodes or far from their devices, the worst first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import click

from kubectl_numazones.printing import screen
from kubectl_numazones.printing.documents import AlignedDocument, AlignedOwner, AlignedPod, HeldOfNuma
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import Seen, read, source_options
from kubectl_numazones.reading.selection import all_namespaces_option, selector_option
from kubectl_numazones.reading.source import Source
from numazones.alignment.alignable import Alignable, alignable
from numazones.alignment.owner_alignment import AlignmentSum, OwnerName, merged, worst_first
from numazones.alignment.pod_alignment import Alignment, PodAlignment, of_node
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
  kubectl numazones aligned            # of this namespace, those that are not
  kubectl numazones aligned -A         # of all namespaces
  kubectl numazones aligned -A -o wide # the aligned ones, too
  kubectl numazones aligned -l app=db
  kubectl numazones aligned -A --by owner  # a line for each Deployment, StatefulSet, Job, ...
  kubectl get nodes,numazones,pods -A -o json > dump.json && kubectl numazones aligned -A -f dump.json
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """One pod that holds something of NUMA nodes."""

    pod: ClusterPod
    found: PodAlignment
    alignable: Alignable
    """Whether its node could hold it aligned."""

    @property
    def owner(self) -> OwnerName:
        """Whose pod it is; itself where nobody owns it."""
        owner = OwnerName.of(self.pod)
        return owner if owner.name else OwnerName(self.pod.namespace, _POD, self.pod.name)


@click.command("aligned", epilog=_EPILOG)
@selector_option("pods")
@all_namespaces_option
@click.option(
    "--by", type=click.Choice(["pod", "owner"]), default="pod", show_default=True, help="A line for each."
)
@output_option("text", "wide", "name")
@source_options
def command(
    source: Source, output: Output, *, everywhere: bool, selector: LabelSelector | None, by: str
) -> int:
    """List the running pods whose CPUs, memory or devices are on several NUMA nodes, the worst first.

    A pod is aligned if one NUMA node has all that each of its containers holds exclusively; it spans NUMA
    nodes if its CPUs, its memory or its devices alone are on several; it is remote from a device or its
    memory if that is on another NUMA node than its CPUs. ALIGNABLE says whether its node could hold it
    aligned: now, with the room that there is; emptier, if others left; or never.

    With --by owner the pods of each owner are counted, those with the most that are not aligned first.
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
        output.write(_document([] if by_owner else rows, by_owner, unknown))
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
        yield _Row(pod, found, alignable(node, pod, found))


def _unknown(seen: Seen) -> list[tuple[str, str]]:
    """Nodes of which is not known who holds what, and why."""
    found = []
    for node in seen.situation.cluster.nodes.values():
        if node.unknown is not None:
            found.append((node.name, node.unknown.message))
        elif node.approximate or node.occupancy is None:
            found.append((node.name, "only amounts are known of it, not who holds what"))
    return found


_PODS: tuple[Column[_Row], ...] = (
    Column("POD", lambda row: row.found.name),
    Column("NODE", lambda row: row.pod.node),
    Column("ALIGNMENT", lambda row: row.found.sentence),
    Column("CPUS", lambda row: _by_numa({numa: str(count) for numa, count in row.found.cpus.items()})),
    Column("MEMORY", lambda row: _by_numa(_rounded(row.found.memory)), expendable=1),
    Column("DEVICES", lambda row: _devices(row.found), expendable=2),
    Column("ALIGNABLE", lambda row: row.alignable),
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


def _summary(rows: list[_Row], namespace: str) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    if not rows:
        return f"no running pod{where} holds anything of NUMA nodes"
    bad = [row.found for row in rows if not row.found.aligned]
    if not bad:
        return (
            f"all {pluralize(len(rows), 'pod')}{where} with CPUs, memory or devices of their own are aligned"
        )
    cpus = sum(found.remote_cpus for found in bad)
    return (
        f"{len(bad)} of {pluralize(len(rows), 'pod')}{where} not aligned; "
        f"{pluralize(cpus, 'CPU')} away from the rest of their container"
    )


def _document(
    rows: list[_Row], owners: dict[OwnerName, AlignmentSum], unknown: list[tuple[str, str]]
) -> AlignedDocument:
    return {
        "items": list(map(_pod_document, rows)),
        "owners": [_owner_document(owner, found) for owner, found in owners.items()],
        "unknown": [{"node": node, "message": message} for node, message in unknown],
    }


def _owner_document(owner: OwnerName, found: AlignmentSum) -> AlignedOwner:
    return {
        "namespace": owner.namespace,
        "kind": owner.kind,
        "name": owner.name,
        "pods": {str(kind): found.pods.get(kind, 0) for kind in Alignment},
        "alignable": {
            str(could): found.alignable.get(could, 0) for could in Alignable if could is not Alignable.YES
        },
        "cpus": found.cpus,
        "remoteCPUs": found.remote_cpus,
        "memory": format_bytes(found.memory),
        "remoteMemory": format_bytes(found.remote_memory),
    }


def _pod_document(row: _Row) -> AlignedPod:
    found = row.found
    numas = sorted({*found.cpus, *found.memory})
    held: list[HeldOfNuma] = [
        {"numa": numa, "cpus": found.cpus.get(numa, 0), "memory": format_bytes(found.memory.get(numa, 0))}
        for numa in numas
    ]
    return {
        "namespace": row.pod.namespace,
        "name": row.pod.name,
        "node": row.pod.node,
        "alignment": str(found.alignment),
        "numas": list(found.numas),
        "distance": found.distance,
        "remoteCPUs": found.remote_cpus,
        "remoteMemory": format_bytes(found.remote_memory),
        "remote": list(found.remote),
        "held": held,
        "devices": [
            {"container": one.name, "resource": resource, "numas": list(near)}
            for one in found.containers
            for resource, near in one.devices.items()
        ],
        "alignable": None if row.alignable is Alignable.UNKNOWN else str(row.alignable),
    }
