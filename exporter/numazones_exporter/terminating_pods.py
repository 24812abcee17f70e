"""Interval until the node is read again while pods are terminating.

A kubelet gives a pod's share back the moment its containers have ended, and tells nobody: its state files
keep the pod until the next admission or reconciliation, and the pod's phase reaches the API server seconds
later (1.5 to 6 s on a busy kubelet 1.36, which writes one status after the other). Podresources alone stops
listing the pod at once. So while a pod that is being deleted is still listed, the node is read again after
short pauses; and while a kubelet that was restarted has not heard of its pods, of which some may have ended.
"""

from numazones_exporter.observation import Observation

FIRST_PAUSE = 0.2
MAX_PAUSE = 2.0
_GROWTH = 1.5


class TerminatingPods:
    """Says after which pause to read the node again."""

    def __init__(self) -> None:
        """Start without any terminating pod."""
        self._terminating: frozenset[str] = frozenset()
        self._pause = FIRST_PAUSE

    def pause_after(self, observation: Observation) -> float | None:
        """Return the seconds to wait, more each time until another pod terminates; None without any."""
        terminating = _terminating(observation)
        new = terminating - self._terminating
        self._terminating = terminating
        if not terminating:
            return None
        self._pause = FIRST_PAUSE if new else min(self._pause * _GROWTH, MAX_PAUSE)
        return self._pause


def _terminating(observation: Observation) -> frozenset[str]:
    """UIDs of the pods that are being deleted and that the kubelet still takes for active, or may take."""
    if observation.pods is None or observation.podresources is None:
        return frozenset()
    if observation.listed_pods is None:
        return frozenset(pod.uid for pod in observation.pods if pod.active)
    listed = {(pod.namespace, pod.name) for pod in observation.listed_pods}
    return frozenset(
        pod.uid
        for pod in observation.pods
        if pod.deleting and pod.active and (pod.namespace, pod.name) in listed
    )
