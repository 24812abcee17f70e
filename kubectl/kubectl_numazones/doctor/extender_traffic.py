"""Traps of the scheduler extender that show in its traffic, whatever its configuration says.

Requests that name a part of the nodes, pods that are tried again and again, and calls that time out. The
extender counts them (``/metrics`` of its pods, which takes the right to get pods/proxy); a pod whose
scheduler got no answer says so in its condition PodScheduled.
"""

from collections.abc import Iterator
from typing import NamedTuple

from kubectl_numazones.doctor.evidence import EXTENDERS_METRICS, Evidence
from kubectl_numazones.doctor.findings import Finding, NotChecked, error, warning
from numazones.cluster.cluster import ClusterPod

_TIMED_OUT = ("context deadline exceeded", "Client.Timeout exceeded")
_AWAY = ("connection refused", "no such host", "connection reset by peer", "EOF")
_OURS = (":9409/", "numazones")
"""What the URL of our extender has, by its port or the name of its Service."""
_MANY = 100
"""So many tries beyond what a pod's surroundings explain are no coincidence, as for the alert."""


class Count(NamedTuple):
    """A counter of the extender's that should stay low."""

    metric: str
    allowed: int
    message: str
    cure: str


COUNTS = (
    Count(
        "numazones_extender_sampled_requests_total",
        0,
        "{} times since it started, no node in the request passed, although another node would have: "
        "the scheduler considers only some of the nodes",
        "set percentageOfNodesToScore: 100 in the scheduler's configuration, and restart it",
    ),
    Count(
        "numazones_extender_repeated_requests_total",
        _MANY,
        "{} requests since it started were for pods that the scheduler keeps retrying: something keeps "
        "requeuing them",
        "see its log for the pods; find out which program updates them, or nodes, many times a second",
    ),
    Count(
        "numazones_extender_unread_answers_total",
        0,
        "{} responses since it started came after the scheduler's timeout",
        "raise httpTimeout in the scheduler's configuration, or give the extender more CPU",
    ),
)


def calls(evidence: Evidence) -> Iterator[Finding]:
    """Pods' schedulers get an answer from the extender."""
    for pod in evidence.seen.pods:
        yield from _unanswered(pod)


def traffic(evidence: Evidence) -> Iterator[Finding]:
    """Requests to extenders name all nodes, don't repeat themselves, and their answers are read."""
    found = [
        warning(name, count.message.format(round(number)), count.cure)
        for name, counters in evidence.counters.items()
        for count in COUNTS
        if (number := counters.get(count.metric, 0)) > count.allowed
    ]
    if not found and EXTENDERS_METRICS in evidence.unseen:
        raise NotChecked(evidence.unseen[EXTENDERS_METRICS])
    yield from found


def _unanswered(pod: ClusterPod) -> Iterator[Finding]:
    """Yield that a pod waits since its scheduler got no answer from the extender."""
    _, reason, message = pod.scheduled or ("", "", "")
    if pod.node or reason != "SchedulerError" or not any(part in message for part in _OURS):
        return
    if any(words in message for words in _TIMED_OUT):
        yield error(
            pod.full_name,
            "its scheduler's calls to the extender time out",
            "give the extender more CPU, or raise httpTimeout in the scheduler's configuration",
        )
    elif any(words in message for words in _AWAY):
        yield error(
            pod.full_name,
            "its scheduler cannot reach the extender",
            "check whether the extender is running and ready: kubectl -n numazones-operator get pods",
        )
