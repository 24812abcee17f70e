"""Evidence for ``doctor``: the objects of a cluster, and what could not be read of it.

Other commands want the cluster as the library reads it; whoever asks what is wrong needs the objects
themselves, the ones that are missing, and why they are missing.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from kubectl_numazones.reading.access import may
from kubectl_numazones.reading.cluster import ClusterView, read_cluster
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.files import Object, distinct_objects
from kubectl_numazones.reading.kinds import DOCTORS, NeededKind, rights
from kubectl_numazones.reading.source import Source, connect, list_objects
from kubectl_numazones.stuck.gated_pods import OPERATOR
from numazones.api import crd
from numazones.cluster.cluster import is_true
from numazones.errors import NumazonesError
from numazones_client import NotFound
from numazones_client.resources import CONFIG_MAPS, DEFINITIONS, EVENTS, LEASES, PODS

if TYPE_CHECKING:
    from numazones_client import Client

EXPORTER = "numazones-exporter"
SCHEDULERS_PODS = "numazones-scheduler"
NAME_LABEL = "app.kubernetes.io/name"
DEFINITION = "CustomResourceDefinition"
EXTENDERS_METRICS = "metrics of the extender"
RIGHTS = "rights of the user"
"""What is not seen without the right to get pods/proxy."""
_EXTENDING = frozenset({SCHEDULERS_PODS, "numazones-extender"})
_METRICS_PORT = 9407


@dataclass(frozen=True, slots=True)
class Evidence:
    """A cluster, as far as it could be seen."""

    seen: ClusterView
    objects: Mapping[str, Sequence[Object]]
    """Kind → its objects; a kind that could not be seen is missing."""
    unseen: Mapping[str, str]
    """Kind → why it could not be seen."""
    now: datetime
    denied: Sequence[str] | None
    """What the user may not do, in the words of ``kubectl auth can-i``; None where it is unknown."""
    unrecordable: Sequence[str] = ()
    """Namespaces whose exporters serve recordings that the user may not fetch."""
    counters: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Pod of an extender → its counters, summed over their labels."""

    def of(self, kind: str) -> Sequence[Object]:
        """Return the objects of a kind; none where it could not be seen."""
        return self.objects.get(kind, ())

    def pods_of(self, program: str) -> Iterator[Object]:
        """Yield the pods of one of our programs, but those that have ended well."""
        for pod in self.of("Pod"):
            phase = (pod.get("status") or {}).get("phase")
            if program_of(pod) == program and phase != "Succeeded":
                yield pod


def program_of(item: Object) -> str:
    """Return which program a pod says that it is; empty: it does not say."""
    return str((item["metadata"].get("labels") or {}).get(NAME_LABEL, ""))


def gather(source: Source) -> Evidence:
    """Look at a cluster or a dump.

    Raises:
        NumazonesError: it cannot be read at all.
    """
    if source.files:
        items = distinct_objects(source.files)
        unseen = {RIGHTS: "a dump does not contain them"}
        unseen |= {EXTENDERS_METRICS: "a dump has no metrics"} if any(map(_extends, items)) else {}
        return _evidence(items, unseen, None, None)
    return run_until_complete(_gather(source))


def _evidence(
    items: Sequence[Object], unseen: Mapping[str, str], now: datetime | None, denied: Sequence[str] | None
) -> Evidence:
    seen = read_cluster(items, now, complete=frozenset() if now is None else frozenset({"NUMAZone"}))
    objects: dict[str, list[Object]] = {}
    for item in items:
        objects.setdefault(str(item["kind"]), []).append(item)
    return Evidence(seen, objects, unseen, seen.situation.context.now, denied)


async def _gather(source: Source) -> Evidence:
    unseen: dict[str, str] = {}

    def leave_out(kind: NeededKind, error: NumazonesError) -> None:
        if kind.kind == "Node":
            raise error
        # Where a foreign kind is not defined, nobody can have written an object of it.
        if not (kind.foreign and isinstance(error, NotFound)):
            unseen[kind.kind] = str(error)

    async with await connect(source) as client:
        items = [item async for item in list_objects(client, DOCTORS, leave_out)]
        try:
            items += await _definitions(client)
            defined = True
        except NumazonesError as error:
            unseen[DEFINITION], defined = str(error), False
        try:
            items += await _scheduler_configuration(client, items)
        except NumazonesError as error:
            unseen["ConfigMap"] = str(error)
        items += await _mount_events(client, items)
        with suppress(NumazonesError):  # the Leases of exporters say what is in the way
            leases = await client.list(LEASES, field_selector=f"metadata.name={OPERATOR}")
            items += [{**lease, "kind": "Lease"} for lease in leases]
        denied = await _denied_rights(client)
        unseen |= {RIGHTS: "this API server does not answer access reviews"} if denied is None else {}
        unrecordable = await _unrecordable(client, items)
        counters, unasked = await _counters(client, items)
        unseen |= {EXTENDERS_METRICS: unasked} if unasked else {}
    found = _evidence(items, unseen, datetime.now(UTC), denied)
    # A kind without objects was seen all the same.
    kinds = [*(kind.kind for kind in DOCTORS), *([DEFINITION] if defined else [])]
    none: dict[str, Sequence[Object]] = {kind: () for kind in kinds if kind not in unseen}
    objects = none | dict(found.objects)
    return Evidence(found.seen, objects, unseen, found.now, denied, unrecordable, counters)


async def _definitions(client: "Client") -> list[Object]:
    """The definitions of our kinds that are installed, one by one: all of a cluster's are large."""
    found: list[Object] = []
    for kind in crd.KINDS:
        try:
            body = await client.get(DEFINITIONS, kind.RESOURCE.crd_name)
        except NotFound:
            continue
        found.append({**body, "kind": DEFINITION})
    return found


async def _scheduler_configuration(client: "Client", items: Sequence[Object]) -> list[Object]:
    """Return the configuration that our scheduler's pods mount, by name: ConfigMaps may hold anything."""
    mounted = {
        (str(item["metadata"].get("namespace")), str(volume["configMap"]["name"]))
        for item in items
        if item["kind"] == "Pod" and program_of(item) == SCHEDULERS_PODS
        for volume in item["spec"].get("volumes") or ()
        if volume.get("configMap")
    }
    found: list[Object] = []
    for namespace, name in sorted(mounted):
        try:
            body = await client.get(CONFIG_MAPS, name, namespace=namespace)
        except NotFound:
            continue
        found.append({**body, "kind": "ConfigMap"})
    return found


async def _mount_events(client: "Client", items: Sequence[Object]) -> list[Object]:
    """Return kubelets' events about exporters without containers; the answer does not depend on them."""
    namespaces = sorted(
        {
            str(item["metadata"].get("namespace"))
            for item in items
            if item["kind"] == "Pod"
            and program_of(item) == EXPORTER
            and (item.get("status") or {}).get("phase") == "Pending"
        }
    )
    found: list[Object] = []
    for namespace in namespaces:
        with suppress(NumazonesError):
            async for page in client.pages(EVENTS, namespace=namespace, field_selector="reason=FailedMount"):
                found += [{**event, "kind": "Event"} for event in page.items]
    return found


async def _denied_rights(client: "Client") -> list[str] | None:
    """Return which rights the user lacks for commands; None if the API server does not report them."""
    denied = []
    try:
        for verb, resource, subresource in rights():
            if not await may(client, verb, resource, subresource):
                denied.append(f"{verb} {resource.full_name}{f'/{subresource}' if subresource else ''}")
    except NumazonesError:
        return None
    return denied


async def _unrecordable(client: "Client", items: Sequence[Object]) -> list[str]:
    """Namespaces with exporters that serve recordings, which the user may not fetch through their pods."""
    namespaces = sorted(
        {str(item["metadata"].get("namespace")) for item in items if _serves_recordings(item)}
    )
    try:
        return [name for name in namespaces if not await may(client, "get", PODS, "proxy", namespace=name)]
    except NumazonesError:
        return []  # as with other rights, the API server does not say


async def _counters(client: "Client", items: Sequence[Object]) -> tuple[dict[str, dict[str, float]], str]:
    """Return the counters of extenders, read through their pods, and why some are unknown."""
    found: dict[str, dict[str, float]] = {}
    why = ""
    for item in items:
        if not _extends(item):
            continue
        namespace, name = str(item["metadata"].get("namespace")), str(item["metadata"]["name"])
        path = PODS.path(f"{name}:{_METRICS_PORT}", namespace=namespace, subresource="proxy/metrics")
        try:
            text = (await client.get_raw(path)).decode(errors="replace")
        except NumazonesError as error:
            why = f"the metrics of {namespace}/{name} could not be read: {error}"
            continue
        found[f"{namespace}/{name}"] = _sums(text)
    return found, why


def _extends(item: Object) -> bool:
    """Return whether this is a pod with an extender that is ready."""
    if item["kind"] != "Pod" or program_of(item) not in _EXTENDING:
        return False
    return is_true(item.get("status") or {}, "Ready")


def _sums(metrics: str) -> dict[str, float]:
    """Return name of a counter of the extender → its sum over all labels."""
    sums: dict[str, float] = {}
    for line in metrics.splitlines():
        series, _, value = line.rpartition(" ")
        name = series.partition("{")[0]
        if name.startswith("numazones_extender_") and name.endswith("_total"):
            with suppress(ValueError):
                sums[name] = sums.get(name, 0) + float(value)
    return sums


def _serves_recordings(item: Object) -> bool:
    """Return whether this exporter pod is configured to serve recordings, by flag or by variable."""
    if item["kind"] != "Pod" or program_of(item) != EXPORTER:
        return False
    return any(
        "--recordings" in (*(container.get("command") or ()), *(container.get("args") or ()))
        or any(
            variable.get("name") == "NUMAZONES_EXPORTER_RECORDINGS"
            and str(variable.get("value")).lower() in {"true", "1"}
            for variable in container.get("env") or ()
        )
        for container in (item.get("spec") or {}).get("containers") or ()
    )
