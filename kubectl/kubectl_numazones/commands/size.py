"""``size``: how many machines a list of pods needs, under which policy, with which CPUs reserved."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated

import click

from kubectl_numazones.experiments.experiment import sized_to_use
from kubectl_numazones.experiments.groups import pod_groups
from kubectl_numazones.printing import screen
from kubectl_numazones.printing.output import Output, output_option
from kubectl_numazones.reading.cluster import NotThere, read, source_options
from kubectl_numazones.reading.recorded_files import is_recording
from kubectl_numazones.reading.recording import history
from kubectl_numazones.reading.source import Source
from kubectl_numazones.reading.usage import UsageSource, prometheus_options
from numazones.apimachinery.quantity import format_bytes
from numazones.apimachinery.resources import CPU, is_memory
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.kubelet.config import POLICY_NONE
from numazones.prediction import doubts
from numazones.whatif.machine_type import node_template
from numazones.whatif.node_template import NodeTemplate, start_nodes
from numazones.whatif.settings import MEMORY_POLICY
from numazones.whatif.sizing import Size, best, choices, size
from numazones.whatif.workload import PodGroup
from numazones.wording import pluralize
from numazones_program.columns import Column

_EPILOG = """
\b
Examples:
  kubectl numazones size 40xcpu=6,memory=24Gi 8xcpu=16,memory=64Gi \\
    --machine sockets=2,numa=4,cores=64,threads=2,memory=512Gi

\b
  The hardware of a node of the cluster, with four CPUs for the system:
    kubectl numazones size 40xcpu=6,memory=24Gi --node worker-1 --reserve 4

\b
  All pods of a workload, each template with its replicas:
    kubectl numazones size raycluster.yaml --node worker-1

\b
  The cluster's pods, if they requested only the CPUs that they used in a week:
    kubectl numazones size --prometheus http://localhost:9090 --node worker-1
"""

_MILLI = 1000


@dataclass(frozen=True, slots=True)
class SizeDocument:
    """``size``: how many machines a list of pods needs."""

    best: Annotated[
        Size | None, "Settings that need the fewest machines; null if the pods do not fit under any settings."
    ]
    sizes: Annotated[Sequence[Size], "One for each combination of settings."]
    doubts: Annotated[
        tuple[str, ...], "What is uncertain because of the kubelet's version and options; usually empty."
    ]


@click.command("size", epilog=_EPILOG)
@click.argument("groups", metavar="[GROUP]...", nargs=-1)
@click.option(
    "--machine", metavar="TYPE", help="Machine type: sockets=2,numa=4,cores=64,threads=2,memory=512Gi."
)
@click.option("--node", "name", metavar="NODE", help="Use the hardware of this node instead.")
@click.option(
    "--reserve",
    type=click.IntRange(min=1),
    metavar="CPUS",
    help="Number of CPUs to reserve for the system; default: as many as the node reserves, or one core.",
)
@click.option(
    "--usage",
    is_flag=True,
    help="Add the cluster's pods, with their requests reduced to the exclusive CPUs that they use.",
)
@prometheus_options("1w")
@output_option()
@source_options
def command(
    source: Source,
    *,
    usage: bool,
    prometheus: str,
    window: str,
    groups: tuple[str, ...],
    machine: str | None,
    name: str | None,
    reserve: int | None,
    output: Output,
) -> int:
    """Compute how many machines pods such as 40xcpu=6,memory=24Gi need, by policy and reserved CPUs.

    A GROUP may also be a manifest (FILE.yaml): each pod template is a group with its replicas. Larger pods
    are placed first, each on the first machine that admits it. AT LEAST is a lower bound: no placement uses
    fewer machines. The exit code is 1 if some pod does not fit even on an empty machine, under any settings.
    """
    if (machine is None) == (name is None):
        raise click.UsageError("specify the machine: either --machine TYPE or --node NODE")
    base = node_template(machine, name="machine") if machine is not None else _of_node(source, str(name))
    cpus = len(base.machine.cpus)
    if reserve is not None and reserve >= cpus:
        raise click.UsageError(f"--reserve {reserve}: the machine has {cpus} CPUs")
    wanted = list(pod_groups(groups))
    if usage or prometheus:
        wanted += _groups_by_use(source, UsageSource(prometheus, window, seconds=0))
    if not wanted:
        raise click.UsageError("specify the pods: GROUP such as 40xcpu=6,memory=24Gi, or --usage")
    drawn = next((group for group in wanted if group.is_drawn), None)
    if drawn is not None:
        raise click.UsageError(f"{drawn} is a range; use one group for each size")
    sizes = [size(base, wanted, settings) for settings in choices(base, reserve or _reserved_cpus(base))]
    found = best(sizes)
    uncertain = doubts.of_configurations([(base.node.name, base.config)])
    screen.warn_of(uncertain)
    if output.is_document:
        output.write(SizeDocument(found, sizes, uncertain))
    else:
        _print_sizes(sizes, found, wanted)
    return 1 if found is None else 0


def _groups_by_use(source: Source, where: UsageSource) -> list[PodGroup]:
    """Return the cluster's pods with exclusive CPUs as groups, with requests that fit their use."""
    nodes = read(source).situation.cluster.nodes
    pods = [pod for node in nodes.values() for pod in node.pods.values() if not pod.stopped]
    holding = [pod for pod in pods if _holds_cpus(nodes[pod.node], pod)]
    counts = Counter(map(_amounts, sized_to_use(holding, nodes, source, where)))
    if not counts:
        raise NotThere("no pod in the cluster has exclusive CPUs")
    return [PodGroup(count, amounts) for amounts, count in sorted(counts.items())]


def _holds_cpus(node: ClusterNode, pod: ClusterPod) -> bool:
    return node.state is not None and bool(node.state.cpus.exclusive_cpus_by_pod().get(pod.kubelet_uid))


def _amounts(pod: ClusterPod) -> tuple[tuple[str, str], ...]:
    """Return what a pod asks for, as a group has it; whole CPUs."""
    amounts = {CPU: str(-(-pod.requests.get(CPU, 0) // _MILLI))} | {
        resource: format_bytes(amount)
        for resource, amount in pod.requests.items()
        if is_memory(resource) and amount
    }
    return tuple(sorted(amounts.items()))


def _of_node(source: Source, name: str) -> NodeTemplate:
    if source.files and is_recording(source.files[0]):
        nodes = {node.name: node for node in history(source.files[0])[0]}
        if name not in nodes:
            raise NotThere(f"node {name} is not in the recording, which has {', '.join(sorted(nodes))}")
        return NodeTemplate.of(nodes[name])
    return NodeTemplate.of(read(source).node(name))


def _reserved_cpus(base: NodeTemplate) -> int:
    """Return how many CPUs the kubelet reserves for the system."""
    # Policies of the Topology Manager keep some kubelets from starting, and change nothing here.
    (node,) = start_nodes([base.with_settings({"topologyManagerPolicy": POLICY_NONE})])
    return 1 if node.state is None else max(1, node.state.kubelet.cpus.reserved.bit_count())


def _print_sizes(sizes: Sequence[Size], found: Size | None, wanted: Sequence[PodGroup]) -> None:
    count = sum(group.count for group in wanted)
    pods = pluralize(count, "pod")
    if found is None:
        them = "this pod does" if count == 1 else f"these {pods} do"
        screen.say(f"{them} not fit on this machine type, however many you have")
    else:
        settings = " ".join(f"{key}={value}" for key, value in found.settings.items())
        least = "the minimum" if found.machines == found.at_least else f"at least {found.at_least} are needed"
        screen.say(f"{pods} on {pluralize(found.machines, 'machine')} ({least}), with {settings}")
    screen.echo()
    columns = _COLUMNS if any(one.misfit for one in sizes) else _COLUMNS[:-1]
    screen.print_table(columns, sizes)


def _unless_misfit(figure: Callable[[Size], int | None]) -> Callable[[Size], str]:
    """Say a figure of what some machines hold."""

    def text(one: Size) -> str:
        found = None if one.misfit else figure(one)
        return "-" if found is None else str(found)

    return text


def _policies(one: Size) -> str:
    memory = one.settings.get(MEMORY_POLICY)
    return one.settings["topologyManagerPolicy"] + (f", memory: {memory}" if memory else "")


_COLUMNS: tuple[Column[Size], ...] = (
    Column("POLICY", _policies),
    Column("RESERVED", lambda one: one.settings["reservedSystemCPUs"]),
    Column("MACHINES", _unless_misfit(lambda one: one.machines), right=True),
    Column("AT LEAST", _unless_misfit(lambda one: one.at_least), right=True),
    Column("CPUS LEFT", _unless_misfit(lambda one: one.left), right=True),
    Column("STRANDED", _unless_misfit(lambda one: one.stranded), right=True),
    Column("ACROSS NUMA", _unless_misfit(lambda one: one.crossing), right=True),
    Column("WHY NOT", lambda one: one.misfit),
)
