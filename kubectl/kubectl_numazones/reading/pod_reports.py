"""Reports about pods: events, and the operator's AdmissionPredictions."""

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from kubectl_numazones.reading.cluster import ClusterView
from kubectl_numazones.reading.event_loop import run_until_complete
from kubectl_numazones.reading.files import Object
from kubectl_numazones.reading.source import Source, connect
from numazones.cluster.cluster import ClusterPod
from numazones_client import APIError
from numazones_client.resources import ADMISSION_PREDICTIONS, EVENTS

if TYPE_CHECKING:
    from numazones_client import Client

_EVENT, _PREDICTION = "Event", "AdmissionPrediction"


def reports_about(pods: Collection[ClusterPod], seen: ClusterView, source: Source) -> dict[str, list[Object]]:
    """Return events and AdmissionPredictions by UID of their pod, as far as they may be read."""
    items: Iterable[Object] = seen.said
    if pods and not source.files:
        items = run_until_complete(_list_reports(pods, source))
    by_name = {(pod.namespace, pod.name): pod for pod in pods}
    found: dict[str, list[Object]] = {pod.uid: [] for pod in pods}
    for item in items:
        about = _about(item)
        pod = by_name.get((str(about.get("namespace")), str(about.get("name"))))
        if pod is not None and about.get("uid") in {None, "", pod.uid}:
            found[pod.uid].append(item)
    return found


def _about(item: Object) -> Object:
    """Namespace, name and UID of what an event or a prediction is about."""
    if item["kind"] == _PREDICTION:
        return {**item["metadata"], "uid": (item.get("spec") or {}).get("podUID")}
    return reference_of(item)


def reference_of(event: Object) -> Object:
    """Return what an event refers to, in the older form of events or the newer one."""
    return event.get("involvedObject") or event.get("regarding") or {}


async def _list_reports(pods: Collection[ClusterPod], source: Source) -> list[Object]:
    async with await connect(source) as client:
        return [item async for item in _reports(client, pods)]


async def _reports(client: "Client", pods: Collection[ClusterPod]) -> AsyncIterator[Object]:
    """Yield the reports about one pod, or in the namespaces of several; answers do without them."""
    one = next(iter(pods)) if len(pods) == 1 else None
    events = "involvedObject.kind=Pod" if one is None else f"involvedObject.name={one.name}"
    predictions = "" if one is None else f"metadata.name={one.name}"
    namespaces = {pod.namespace for pod in pods}
    namespace = namespaces.pop() if len(namespaces) == 1 else ""
    for kind, resource, selector in (
        (_EVENT, EVENTS, events),
        (_PREDICTION, ADMISSION_PREDICTIONS, predictions),
    ):
        with suppress(APIError):
            async for page in client.pages(resource, namespace=namespace, field_selector=selector):
                for item in page.items:
                    yield {**item, "kind": kind}
