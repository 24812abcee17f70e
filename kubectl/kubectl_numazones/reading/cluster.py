"""Objects that a command needs: from the live cluster, or from files with ``-f``.

Whatever the source, a command gets one ``Situation``, read by the library as the operator reads the same
objects. What is missing is said where it matters: without NUMAZones every node's state is unknown, and
nothing "fits".
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

import numazones_client
from kubectl_numazones.reading.bad_dump import BadDump
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.files import Object, Objects, objects_of_files, with_objects_of
from kubectl_numazones.reading.garbage_collection import without_collection
from kubectl_numazones.reading.names import (
    NODE_TYPES,
    OWNER_TYPES,
    POD_TYPES,
    complete_namespaces,
    without_type,
)
from kubectl_numazones.reading.source import Source, listed
from numazones.apimachinery.api_object import CURE, MALFORMED, InvalidObject
from numazones.cluster.admission_gate import RELEASED
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.dump import Dump, nodes_of
from numazones.cluster.owners import owner_of
from numazones.errors import NumazonesError
from numazones.placement.occupancy import Occupancy
from numazones.wording import did_you_mean, pluralize, some_of

if TYPE_CHECKING:  # most commands do without
    from numazones.api.rebalance import Goals
    from numazones.rebalance.candidates import Situation

_Result = TypeVar("_Result")
_Command = TypeVar("_Command", bound=Callable[..., Any])

_MAX_NAMED = 5
_MAX_NODES = 10
"""An error names only so many pods or nodes."""
DEFAULT_NAMESPACE = "default"
_DUMP_AGAIN = "dump it again, or leave it out"


class NotThere(NumazonesError):
    """The cluster or dump has no such object; the message names it."""


def source_options(command: _Command) -> _Command:
    """Add the options that say where objects come from; the command gets them as ``source``."""
    return _with_options(command, _OPTIONS)


def live_options(command: _Command) -> _Command:
    """Add the same options without ``-f``, for a command that needs a live cluster."""
    return _with_options(command, _OPTIONS[1:])


def _with_options(command: _Command, options: Sequence[Callable[[_Command], _Command]]) -> _Command:
    def with_source(
        *,
        filename: tuple[Path, ...] = (),
        kubeconfig: Path | None,
        context: str | None,
        namespace: str,
        as_user: str,
        as_groups: tuple[str, ...],
        **rest: Any,
    ) -> Any:
        if as_groups and not as_user:
            raise click.UsageError("--as-group needs --as: specify a user who is a member of that group")
        source = Source(filename, kubeconfig, context, namespace, as_user, as_groups)
        try:
            return command(source=source, **rest)
        except MALFORMED as error:
            if not source.files:
                raise
            raise _malformed_object(source, error) from error
        except numazones_client.ConfigError as error:
            if not (error.unnamed and options is _OPTIONS):
                raise
            raise numazones_client.ConfigError(f"{error}, or read a dump (-f DUMP)") from error

    with_source.__doc__ = command.__doc__
    with_source.__name__ = command.__name__
    if hasattr(command, "__click_params__"):
        with_source.__click_params__ = command.__click_params__  # type: ignore[attr-defined] # click's own way
    wrapped: _Command = with_source  # type: ignore[assignment] # click calls it by keyword
    for option in reversed(options):
        wrapped = option(wrapped)
    return wrapped


_OPTIONS = (
    click.option(
        "-f",
        "--filename",
        type=click.Path(path_type=Path),
        multiple=True,
        metavar="FILE",
        help="Read this dump (file or directory) or recording instead of the cluster; may be given several "
        "times.",
    ),
    click.option(
        "-n",
        "--namespace",
        default="",
        help="Namespace to use if a name does not include one.",
        shell_complete=complete_namespaces,
    ),
    click.option("--context", help="Kubeconfig context to use."),
    click.option("--kubeconfig", type=click.Path(path_type=Path), help="Path of the kubeconfig file."),
    click.option("--as", "as_user", default="", metavar="USER", help="Act as this user (impersonation)."),
    click.option(
        "--as-group",
        "as_groups",
        multiple=True,
        metavar="GROUP",
        help="Act as a member of this group; may be given several times.",
    ),
)


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as it was read."""

    situation: "Situation"
    ended: tuple[ClusterPod, ...]
    """Pods that have ended, rejected ones among them; they hold nothing."""
    owners: Mapping[str, tuple[str, str, str]]
    """UID of a ReplicaSet, StatefulSet or Job → its kind, namespace/name, name of its own controller."""
    made: tuple[Object, ...]
    """RebalanceRecommendations."""
    priority_classes: Mapping[str, int]
    """Values by name."""
    namespace: str = DEFAULT_NAMESPACE
    """The one that names without a namespace are looked for in."""
    said: tuple[Object, ...] = ()
    """Events and AdmissionPredictions, as far as a dump has them."""
    kinds: frozenset[str] = frozenset()
    """Kinds of which there was any object, pods aside."""
    without_node: tuple[ClusterPod, ...] = ()
    """Pods bound to nodes that have no Node object."""
    policies: tuple[Object, ...] = ()
    """RebalancePolicies."""

    @property
    def pods(self) -> Iterator[ClusterPod]:
        """All pods: those on nodes, there or not, those without one, those that have ended."""
        for node in self.situation.cluster.nodes.values():
            yield from node.pods.values()
        yield from self.without_node
        yield from self.situation.cluster.pending.values()
        yield from self.ended

    def named(self, name: str) -> list[ClusterPod]:
        """Return the pods that a user named: ``name``, ``namespace/name``, ``deploy/name`` or another owner.

        Raises:
            NotThere: there is no such pod, or the owner has none.
        """
        prefix, slash, rest = name.partition("/")
        kind = OWNER_TYPES.get(prefix.partition(".")[0]) if slash else None  # deployment.apps/web, too
        if kind is not None:
            return self._pods_of_owner(kind, self.namespace, rest)
        namespace, bare = _split(name, self.namespace)
        found = [pod for pod in self.pods if pod.name == bare and pod.namespace == namespace]
        if found:
            owner = found[0].controller
            if owner is None or (found[0].node and not found[0].terminal):
                return found
            return [*found, *(pod for pod in self.pods if owner in pod.owners and pod is not found[0])]
        elsewhere = sorted(pod.namespace for pod in self.pods if pod.name == bare)
        if elsewhere:
            cure = f"; there is one in namespace {', '.join(elsewhere)}: -n {elsewhere[0]}"
        else:
            cure = did_you_mean(bare, [pod.name for pod in self.pods if pod.namespace == namespace])
        read = pluralize(sum(1 for _ in self.pods), "pod")
        raise NotThere(f"pod {namespace}/{bare} was not found among the {read} that were read{cure}")

    def _pods_of_owner(self, kind: str, namespace: str, name: str) -> list[ClusterPod]:
        wanted = (kind, f"{namespace}/{name}")
        found = [pod for pod in self.pods if pod.namespace == namespace and wanted in self._owners_of(pod)]
        if found:
            return found
        others = sorted({owner for pod in self.pods for one, owner in self._owners_of(pod) if one == kind})
        elsewhere = [other.partition("/")[0] for other in others if other.endswith(f"/{name}")]
        if elsewhere:
            cure = f"there is one in namespace {', '.join(elsewhere)}: -n {elsewhere[0]}"
        elif others:
            some = ", ".join(others[:_MAX_NAMED]) + (", …" if len(others) > _MAX_NAMED else "")
            cure = f"{kind}s with pods: {some}"
        else:
            cure = f"no {kind} owns any of them; see the pods' ownerReferences"
        number = pluralize(sum(1 for _ in self.pods), "pod")
        raise NotThere(f"{kind} {namespace}/{name} owns none of the {number} that were read; {cure}")

    def _owners_of(self, pod: ClusterPod) -> Iterator[tuple[str, str]]:
        owner = pod.controller
        if owner is None:
            return
        yield owner.kind, f"{pod.namespace}/{owner.name}"
        above = self.owners.get(owner.uid)
        if above is not None:
            if above[2]:
                yield "Deployment", f"{pod.namespace}/{above[2]}"
            return
        kind, name = owner_of(pod)  # without the ReplicaSet its name tells
        if kind != owner.kind:
            yield kind, f"{pod.namespace}/{name}"

    def node(self, name: str) -> ClusterNode:
        """Return the node that a user named.

        Raises:
            NotThere: there is no such node.
        """
        return node_named(name, self.situation.cluster.nodes)

    def goals(self) -> "Iterator[Goals]":
        """Yield the goals of the RebalancePolicies, but of those that cannot be read."""
        from numazones.api.rebalance import RebalancePolicy  # noqa: PLC0415 - most commands do without

        for item in self.policies:
            with suppress(NumazonesError):
                yield RebalancePolicy.from_api(item).spec.goals

    def policy_mode(self, name: str) -> str | None:
        """Return the mode of a RebalancePolicy; None if there is no such policy.

        Where no policies were read, nothing speaks against an approval: the mode is taken to be Approve.
        """
        if "RebalancePolicy" not in self.kinds:
            return "Approve"
        specs = (item.get("spec") or {} for item in self.policies if item["metadata"]["name"] == name)
        return next((str(spec.get("mode") or "Recommend") for spec in specs), None)

    def recommendations(self, pods: Iterable[ClusterPod]) -> list[str]:
        """Return the names of the RebalanceRecommendations in force that place one of the pods."""
        if not self.made:
            return []
        from numazones.api.rebalance import ENDED  # noqa: PLC0415 - most commands do without

        wanted = {(pod.namespace, pod.name) for pod in pods}
        return [
            item["metadata"]["name"]
            for item in self.made
            if (item.get("status") or {}).get("phase") not in ENDED
            and any(
                (placed["pod"].get("namespace"), placed["pod"].get("name")) in wanted
                for placed in (item.get("spec") or {}).get("placements") or ()
            )
        ]


def node_named(name: str, nodes: Mapping[str, ClusterNode]) -> ClusterNode:
    """Return the node that a user named.

    Raises:
        NotThere: there is no such node.
    """
    name = without_type(name, NODE_TYPES)
    if name in nodes:
        return nodes[name]
    some = some_of(sorted(nodes), most=_MAX_NODES)
    raise NotThere(f"node {name} is not among the {pluralize(len(nodes), 'node')} read ({some})")


def occupancy_of(node: ClusterNode) -> Occupancy:
    """Return who holds what of a node.

    Raises:
        NotThere: that is not known.
    """
    occupancy = node.occupancy
    if occupancy is not None:
        return occupancy
    if node.unknown is not None:
        raise NotThere(f"the state of node {node.name} is unknown: {node.unknown.message}")
    raise NotThere(
        f"the CPUs of node {node.name} are unknown: its NodeResourceTopology has no CPU topology; check "
        "that the agent that publishes it is running there"
    )


def read(source: Source) -> ClusterView:
    """Read the cluster.

    Raises:
        BadDump: a file cannot be read.
        NumazonesError: the API server cannot be asked, or an object makes no sense.
    """
    return _read_objects(
        source,
        lambda objects, namespace: read_cluster(
            chain(objects.others(), objects.pods()),
            None if source.files else datetime.now(UTC),
            namespace=namespace,
            complete=objects.read,
        ),
    )


def read_nodes_and_comers(source: Source) -> tuple[list[ClusterNode], list[ClusterPod] | None]:
    """Read the nodes without their pods, which are many, and the pods that room may be held for.

    Of a dump that is None: its pods are not read at all.

    Raises:
        BadDump: a file cannot be read.
        NumazonesError: the API server cannot be asked, or an object makes no sense.
    """

    def take(objects: Objects, _namespace: str) -> tuple[list[ClusterNode], list[ClusterPod] | None]:
        nodes = nodes_of(objects.others(), objects.pods, objects.read)
        if source.files:
            return nodes, None
        return nodes, [ClusterPod.from_api(item) for item in objects.pods() if _may_hold_room(item)]

    return _read_objects(source, take)


def _may_hold_room(pod: Object) -> bool:
    """Return whether a pod has no node, but was released or nominated for one."""
    if (pod.get("spec") or {}).get("nodeName"):
        return False
    nominated = (pod.get("status") or {}).get("nominatedNodeName")
    return bool(nominated) or RELEASED in (pod["metadata"].get("annotations") or {})


def _read_objects(source: Source, take: Callable[[Objects, str], _Result]) -> _Result:
    """Give the objects to ``take``, and the namespace that names without one are looked for in."""
    if not source.files:
        objects, namespace = run_until_complete(listed(source))
        return take(objects, source.namespace or namespace)
    with without_collection():
        return with_objects_of(
            source.files, lambda objects: take(objects, source.namespace or DEFAULT_NAMESPACE)
        )


def read_cluster(
    items: Iterable[Object],
    now: datetime | None,
    *,
    namespace: str = DEFAULT_NAMESPACE,
    complete: frozenset[str] = frozenset(),
) -> ClusterView:
    """Read objects as the cluster at a moment; None: that of the dump that they are.

    ``namespace``: for names without one; ``complete``: kinds that were read completely, even if there are
    no such objects.

    Raises:
        NumazonesError: there are no nodes among them, or one makes no sense.
    """
    # Imported late: commands that read the nodes alone do without all that planning needs.
    from numazones.rebalance.dump import situation_of  # noqa: PLC0415

    dump = Dump.of(items, complete)
    owners = {
        item["metadata"].get("uid", ""): (
            kind,
            f"{item['metadata'].get('namespace', '')}/{item['metadata'].get('name', '')}",
            next(
                (
                    owner.get("name", "")
                    for owner in item["metadata"].get("ownerReferences") or ()
                    if owner.get("controller")
                ),
                "",
            ),
        )
        for kind in ("ReplicaSet", "StatefulSet", "Job")
        for item in dump.of_kind(kind)
    }
    situation = situation_of(dump, now or dump.moment)
    bound = (pod for pod in dump.pods if pod.node and not pod.terminal)
    return ClusterView(
        situation,
        tuple(pod for pod in dump.pods if pod.terminal),
        owners,
        tuple(dump.of_kind("RebalanceRecommendation")),
        dump.priority_classes,
        namespace,
        (*dump.of_kind("Event"), *dump.of_kind("AdmissionPrediction")),
        frozenset(dump.others),
        tuple(pod for pod in bound if pod.node not in situation.cluster.nodes),
        tuple(dump.of_kind("RebalancePolicy")),
    )


def _malformed_object(source: Source, error: Exception) -> BadDump:
    """Say which object of a dump is malformed: the first that fails alone."""
    node = {"kind": "Node", "metadata": {"name": "any"}}
    for item in objects_of_files(source.files):
        try:
            read_cluster([node, item], None)
        except MALFORMED as reason:
            metadata = item.get("metadata")
            parts = (
                [metadata.get(key) for key in ("namespace", "name")] if isinstance(metadata, Mapping) else []
            )
            name = "/".join(str(part) for part in parts if part)
            if isinstance(reason, InvalidObject):
                return BadDump(f"{str(reason).removesuffix(CURE)}; {_DUMP_AGAIN}")
            return BadDump(
                f"{item['kind']} {name or '(unnamed)'} is malformed ({type(reason).__name__}: {reason}); "
                f"{_DUMP_AGAIN}"
            )
        except NumazonesError:
            continue
    return BadDump(
        f"{', '.join(map(str, source.files))}: an object is malformed ({type(error).__name__}: "
        f"{error}); dump it again. If kubectl wrote the object like this, please report a bug"
    )


def _split(name: str, default: str) -> tuple[str, str]:
    name = without_type(name, POD_TYPES)
    namespace, slash, bare = name.partition("/")
    return (namespace, bare) if slash else (default, name)
