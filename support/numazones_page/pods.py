"""Pods without a node on the page: those that wait, and those on their way to one.

Each yields documents with their keys, as ``documents`` describes them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import Any

from numazones.advice.changes import Advice
from numazones.api.place import Place
from numazones.apimachinery.answer import document as written
from numazones.apimachinery.quantity import format_bytes, format_milli
from numazones.apimachinery.resources import is_memory
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.rejected_pods import is_rejected, rejection
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import Prediction
from numazones.prediction.held_room import Hold, by_node, zones_held
from numazones.prediction.stuck import REJECTED, PodCounts, Waiting, is_stuck
from numazones.wording import claimed_name
from numazones_page.documents import Document

_MAX_NAMED = 20
"""Rejected pods of an owner that are named, the latest first."""


@dataclass(frozen=True, slots=True)
class WaitingPod:
    """A pod without a node, and what is known about it."""

    pod: ClusterPod
    prediction: Prediction
    advice: tuple[Advice, ...] | None = ()
    """What would help, each proven; None while that is being worked out."""
    waits: tuple[Wait, ...] = ()
    """What it waits for, whatever the nodes say."""
    scheduler: str = ""
    """The scheduler's last word on it."""
    held: tuple[str, ...] = ()
    """Pods for which nodes hold room that would admit it otherwise."""

    @property
    def stuck(self) -> bool:
        """Return whether it is stuck, not just about to get a node."""
        return is_stuck(self.prediction, self.waits)


def waiting_documents(
    waiting: Iterable[WaitingPod],
    *,
    ended: Iterable[ClusterPod] = (),
    plans: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Iterator[tuple[str, Document]]:
    """Yield the numbers of stuck pods, then pods that wait and rejected ones by owner, each with its key.

    Rejected pods among those ``ended`` count for their owner. ``plans``: NAMESPACE/NAME of a pod → name of
    each plan that places it → the words for it.
    """
    waiting = list(waiting)
    rejected: dict[str, list[ClusterPod]] = {}
    for pod in filter(is_rejected, ended):
        rejected.setdefault(_owner_uid(pod), []).append(pod)
    listed = (Waiting(item.pod, item.prediction, item.waits) for item in waiting)
    counts = PodCounts.of(listed, chain.from_iterable(rejected.values()))
    yield "counts/", written(counts) | {"headline": counts.headline, "details": counts.details}
    groups: dict[tuple[str, str, bool], list[WaitingPod]] = {}
    for item in waiting:
        # Pods of one owner may still ask for different things, as those of a Job that was changed.
        asked = str(sorted(item.pod.requests.items()))
        groups.setdefault((_owner_uid(item.pod), asked, item.stuck), []).append(item)
    for (owner, *_), group in groups.items():
        first = min(group, key=lambda item: (item.pod.created, item.pod.name))
        names = sorted(item.pod.name for item in group)
        said = {pair for name in names for pair in plans.get(f"{first.pod.namespace}/{name}", {}).items()}
        document = {
            **_waiting_document(first),
            **_owner_document(first.pod),
            "pods": names,
            "rejected": _rejections_document(rejected.get(owner, [])),
            "plans": sorted(said),
        }
        yield f"waiting/{first.pod.namespace}/{names[0]}", document
    for owner in rejected.keys() - {owner for owner, *_ in groups}:
        yield _rejected_document(rejected[owner])


def _owner_uid(pod: ClusterPod) -> str:
    """Return the UID of the pod's controller, or its own if it has none."""
    return pod.uid if pod.controller is None else pod.controller.uid


def _owner_document(pod: ClusterPod) -> dict[str, Any]:
    owner = pod.controller
    named = None if owner is None else [claimed_name(owner.kind), claimed_name(owner.name)]
    return {"namespace": pod.namespace, "asks": _asks(pod), "owner": named}


def _rejected_document(pods: Sequence[ClusterPod]) -> tuple[str, Document]:
    """Return the document of rejected pods of one owner that has none waiting, with its key."""
    latest = max(pods, key=lambda pod: pod.created)
    document = {
        **_owner_document(latest),
        "pods": [latest.name],
        "since": min(pod.created for pod in pods),
        "stuck": False,
        "verdict": REJECTED,
        "sentence": rejection(latest),
        "reason": latest.reason,
        "rejected": _rejections_document(pods),
        **{name: [] for name in ("waits", "held", "doubts", "reasons", "advice", "plans")},
    }
    return f"waiting/{latest.namespace}/{latest.name}", document


def _waiting_document(item: WaitingPod) -> dict[str, Any]:
    pod, prediction = item.pod, item.prediction
    return {
        "since": pod.created,
        "stuck": item.stuck,
        "verdict": prediction.verdict,
        "sentence": prediction.sentence,
        "hopeless": prediction.hopeless,
        "doubts": list(prediction.doubts),
        "waits": [wait.sentence for wait in item.waits],
        "scheduler": item.scheduler,
        "held": list(item.held),
        "reason": _reason(item),
        "nodes": written(prediction.nodes),
        "reasons": written(prediction.reasons),
        "advice": None if item.advice is None else [[one.node, one.line] for one in item.advice],
    }


def _asks(pod: ClusterPod) -> list[list[str]]:
    """Return the requests of a pod, as the scheduler counts them."""
    return [[name, _amount(name, amount)] for name, amount in sorted(pod.requests.items())]


def _amount(resource: str, amount: int) -> str:
    if resource == "cpu":
        return format_milli(amount)
    return format_bytes(amount) if is_memory(resource) else str(amount)


def _reason(item: WaitingPod) -> str:
    """Return the obstacle in a word or two that many pods share."""
    if item.waits:
        return item.waits[0].reason
    return item.prediction.reason


def _rejections_document(pods: Sequence[ClusterPod]) -> Document | None:
    if not pods:
        return None
    latest = max(pods, key=lambda pod: pod.created)
    return {
        "count": len(pods),
        "since": min(pod.created for pod in pods),
        "reason": latest.reason,
        "message": latest.message,
        "pods": [pod.name for pod in sorted(pods, key=lambda pod: pod.created, reverse=True)[:_MAX_NAMED]],
    }


# Pods on their way


def held_documents(
    held: Iterable[Hold], node: Callable[[str], ClusterNode | None]
) -> Iterator[tuple[str, Document]]:
    """Yield the room that is held for pods on their way to nodes, in their order, each with its key."""
    listed = list(held)
    zones: dict[tuple[str, str], tuple[int, ...]] = {}
    for name, pods in by_node(listed).items():
        there = node(name)
        for pod, numas in zones_held(there, pods) if there is not None else ():
            zones[name, pod.uid] = tuple(numas)
    for item in listed:
        yield (
            f"held/{item.pod.full_name}",
            {
                "asks": _asks(item.pod),
                "way": str(item.way),
                "until": item.ends,
                "places": [written(Place(name, zones.get((name, item.pod.uid), ()))) for name in item.nodes],
            },
        )
