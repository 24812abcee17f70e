"""``aligned``: which running pods lie across NUMA nodes or far from their devices, the worst first."""

from collections.abc import Iterator
from dataclasses import dataclass

import click

from kubectl_numazones import screen
from kubectl_numazones.cluster import Seen, Source, read, source_options
from kubectl_numazones.documents import AlignedDocument, AlignedPod, HeldOfNuma
from kubectl_numazones.output import Output, output_option
from numazones.alignment import PodAlignment, Possible, of_node, possible_on
from numazones.cluster import ClusterNode, ClusterPod
from numazones.label_selector import LabelSelector
from numazones.quantity import format_bytes, format_rounded
from numazones.wording import pluralize

_COLUMNS = ("POD", "NODE", "ALIGNMENT", "CPUS", "MEMORY", "DEVICES", "ALIGNABLE")
_EXPENDABLE = (4, 5)
_EPILOG = """
\b
Examples:
  kubectl numazones aligned            # of this namespace, those that are not
  kubectl numazones aligned -A         # of all namespaces
  kubectl numazones aligned -A -o wide # the aligned ones, too
  kubectl numazones aligned -l app=db
  kubectl get nodes,numazones,pods -A -o json > dump.json && kubectl numazones aligned -A -f dump.json
"""


@dataclass(frozen=True, slots=True)
class _Row:
    """One pod that holds something of NUMA nodes."""

    pod: ClusterPod
    found: PodAlignment
    possible: Possible | None
    """Whether its node could hold it aligned; None: unknown."""


@click.command("aligned", epilog=_EPILOG)
@click.option("-A", "--all-namespaces", is_flag=True, help="Pods of every namespace.")
@click.option(
    "-l",
    "--selector",
    default="",
    metavar="SELECTOR",
    help="Only pods with these labels, as kubectl's: app=db,tier!=test.",
)
@output_option("text", "wide", "name")
@source_options
def command(source: Source, output: Output, *, all_namespaces: bool, selector: str) -> int:
    """List the running pods whose CPUs, memory or devices are on several NUMA nodes, the worst first.

    A pod is aligned if one NUMA node has all that each of its containers holds exclusively; it spans NUMA
    nodes if its CPUs, its memory or its devices alone are on several; it is remote from a device or its
    memory if that is on another NUMA node than its CPUs. ALIGNABLE says whether its node could hold it
    aligned: now, with the room that there is; emptier, if others left; or never.
    """
    wanted = LabelSelector.parse(selector) if selector else None
    seen = read(source)
    rows = [
        row
        for node in seen.situation.cluster.nodes.values()
        for row in _of_node(node)
        if (all_namespaces or row.pod.namespace == seen.namespace)
        and (wanted is None or wanted.matches(row.pod.labels))
    ]
    rows.sort(key=lambda row: (tuple(-part for part in row.found.badness), row.found.name))
    unknown = _unknown(seen)
    if output.is_document:
        output.write(_document(rows, unknown))
        return 0
    shown = rows if output.form == "wide" else [row for row in rows if not row.found.aligned]
    if output.form == "name":
        for row in shown:
            screen.echo(f"pod/{row.pod.name}")
        return 0
    _print(shown, wide=output.form == "wide")
    screen.echo(_summary(rows, "" if all_namespaces else seen.namespace))
    for name, message in unknown:
        screen.echo(f"{name}: {message}")
    return 0


def _of_node(node: ClusterNode) -> Iterator[_Row]:
    for pod, found in of_node(node) or ():
        yield _Row(pod, found, None if found.aligned else possible_on(node, pod))


def _unknown(seen: Seen) -> list[tuple[str, str]]:
    """Nodes of which is not known who holds what, and why."""
    found = []
    for node in seen.situation.cluster.nodes.values():
        if node.unknown is not None:
            found.append((node.name, node.unknown.message))
        elif node.approximate or node.occupancy is None:
            found.append((node.name, "only amounts are known of it, not who holds what"))
    return found


def _print(rows: list[_Row], *, wide: bool) -> None:
    if not rows:
        return
    cells = [_cells(row) for row in rows]
    kept = screen.columns_that_fit(_COLUMNS, cells, expendable=() if wide else _EXPENDABLE)
    screen.print_table([_COLUMNS[index] for index in kept], [[row[index] for index in kept] for row in cells])


def _cells(row: _Row) -> tuple[str, ...]:
    found = row.found
    return (
        found.name,
        row.pod.node,
        found.sentence,
        _by_numa({numa: str(count) for numa, count in found.cpus.items()}),
        _by_numa({numa: format_rounded(size) for numa, size in found.memory.items()}),
        _devices(found),
        _word(row) or "unknown",
    )


def _word(row: _Row) -> str | None:
    if row.found.aligned:
        return "yes"
    if row.possible is None:
        return None
    return "now" if row.possible.now else "emptier" if row.possible.ever else "never"


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


def _document(rows: list[_Row], unknown: list[tuple[str, str]]) -> AlignedDocument:
    return {
        "items": list(map(_pod_document, rows)),
        "unknown": [{"node": node, "message": message} for node, message in unknown],
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
        "alignable": _word(row),
    }
