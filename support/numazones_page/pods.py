"""Pods without a node on the page: those that wait, and those on their way to one.

Each yields documents with their keys, as ``documents`` describes them.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from numazones.advice.changes import Advice
from numazones.apimachinery.answer import document as written
from numazones.apimachinery.quantity import format_bytes, format_milli
from numazones.apimachinery.resources import is_memory
from numazones.cluster.cluster import ClusterNode, ClusterPod
from numazones.cluster.waiting import Wait
from numazones.prediction.forecast import Prediction
from numazones.prediction.held_room import Hold, by_node, zones_held
from numazones.wording import claimed_name
from numazones_page.documents import Document


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
    """Whom room is held for on nodes that would admit it otherwise."""


def waiting_documents(
    waiting: Iterable[WaitingPod],
    *,
    ended: Iterable[ClusterPod] = (),
    plans: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> Iterator[tuple[str, Document]]:
    """Yield pods that wait, those of one owner together, each with its key.

    Args:
        waiting: the pods.
        ended: pods that have ended; rejected ones count for their owner.
        plans: NAMESPACE/NAME of a pod → name of each plan that places it → what is to be said of it.
    """
    rejected: dict[str, list[ClusterPod]] = {}
    for pod in ended:
        owner = pod.controller
        if owner is not None and pod.reason and not pod.acknowledged:
            rejected.setdefault(owner.uid, []).append(pod)
    groups: dict[str, list[WaitingPod]] = {}
    for item in waiting:
        owner = item.pod.controller
        # Pods of one owner may still ask for different things, as those of a Job that was changed.
        groups.setdefault(
            f"{owner.uid if owner else item.pod.uid} {sorted(item.pod.requests.items())}", []
        ).append(item)
    for group in groups.values():
        first = min(group, key=lambda item: (item.pod.created, item.pod.name))
        owner = first.pod.controller
        names = sorted(item.pod.name for item in group)
        document = {
            **_waiting_document(first),
            "owner": [claimed_name(owner.kind), claimed_name(owner.name)] if owner else None,
            "pods": names,
            "rejected": _rejections_document(rejected.get(owner.uid, [])) if owner else None,
            "plans": sorted(
                {pair for name in names for pair in plans.get(f"{first.pod.namespace}/{name}", {}).items()}
            ),
        }
        yield f"waiting/{first.pod.namespace}/{names[0]}", document


def _waiting_document(item: WaitingPod) -> dict[str, Any]:
    pod, prediction = item.pod, item.prediction
    return {
        "namespace": pod.namespace,
        "asks": _asks(pod),
        "since": pod.created,
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
    }


# Pods on their way


def held_documents(
    held: Iterable[Hold], node: Callable[[str], ClusterNode | None]
) -> Iterator[tuple[str, Document]]:
    """Yield the room that is held for pods on their way to nodes, each with its key.

    Args:
        held: the room, in the order in which the pods will come.
        node: finds a node by name.
    """
    listed = list(held)
    zones: dict[tuple[str, str], list[int]] = {}
    for name, pods in by_node(listed).items():
        there = node(name)
        for pod, numas in zones_held(there, pods) if there is not None else ():
            zones[name, pod.uid] = list(numas)
    for item in listed:
        yield (
            f"held/{item.pod.full_name}",
            {
                "asks": _asks(item.pod),
                "way": str(item.way),
                "until": item.ends,
                "places": [[name, zones.get((name, item.pod.uid), [])] for name in item.nodes],
            },
        )
