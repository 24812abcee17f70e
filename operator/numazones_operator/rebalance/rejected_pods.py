"""Pods that owners make again and again because kubelets reject each one, as pods that planning can place.

Where nothing holds such a pod back, the scheduler binds it within milliseconds, the kubelet rejects it, and
the owner makes the next: none of them waits long enough to be planned for. The next one is known
nevertheless, by the owner's template. It stands among the waiting pods under the owner's UID, for as long as
the loop goes on. Nobody can tell when the scheduler binds the next pod, so a plan for one is carried out only
if it holds whenever that happens; otherwise it says that the scheduling gate is missing.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from numazones.apimachinery import timestamp
from numazones.cluster.admission_gate import GATE
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.placement import ADMITTED
from numazones.placement.model import kubelet_verdict
from numazones.rebalance.moves import replacement
from numazones_operator.faults import ObjectFaults

_MAX_PAUSE = timedelta(minutes=10)
"""A loop in which nobody was rejected for so long is over; a Job's controller pauses up to 6 minutes."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def next_pods(
    pods: Iterable[ClusterPod],
    template: Callable[[str], ClusterPod | None],
    now: datetime,
    faults: ObjectFaults,
) -> dict[str, ClusterPod]:
    """Return, by the owner's UID, the pod that each owner makes next whose newest pod a kubelet rejected.

    ``template`` gives the pod that an owner would make, by the owner's UID; None for one that is gone.
    """
    owned = [(pod, owner.uid) for pod, owner in faults.over(pods, lambda pod: pod.controller) if owner]
    troubled = {uid for pod, uid in owned if pod.phase == "Failed"}
    newest: dict[str, _Dated] = {}
    for pod, dated in faults.over((pod for pod, uid in owned if uid in troubled), _dated):
        uid = pod.controller.uid if pod.controller else ""
        if dated is not None and (uid not in newest or dated.order > newest[uid].order):
            newest[uid] = dated

    def next_one(pod: ClusterPod) -> ClusterPod | None:
        uid = pod.controller.uid if pod.controller else ""
        if newest[uid].admitted or now - newest[uid].created >= _MAX_PAUSE:
            return None
        made = template(uid)
        if made is None or GATE in made.constraints.scheduling_gates:
            return None
        return _next_pod(pod, uid, made)

    found = faults.over((dated.pod for dated in newest.values()), next_one)
    return {made.uid: made for _, made in found if made is not None}


class _Dated(NamedTuple):
    """A pod about which its kubelet has decided."""

    pod: ClusterPod
    created: datetime
    admitted: bool

    @property
    def order(self) -> tuple[datetime, bool, str]:
        """By creation, in whole seconds; of equals, those that were rejected count as later."""
        return self.created, not self.admitted, self.pod.name


def _dated(pod: ClusterPod) -> _Dated | None:
    verdict = kubelet_verdict(pod)
    created = _NEVER if not pod.created else timestamp.parse(pod.created)
    return None if verdict is None else _Dated(pod, created, verdict == ADMITTED)


def with_next_pods(cluster: Cluster, pods: Mapping[str, ClusterPod], faults: ObjectFaults) -> Cluster:
    """Return the cluster in which the next pod of each owner in a loop waits.

    It stands in for those that wait at the moment, and for those that a kubelet is about to reject.
    """

    def passes(pod: ClusterPod) -> bool:
        return pod.controller is not None and pod.controller.uid in pods

    for node in cluster.nodes.values() if pods else ():

        def is_coming(pod: ClusterPod, node: ClusterNode = node) -> bool:
            return passes(pod) and kubelet_verdict(pod) is None and not _is_held(node, pod)

        for pod, coming in faults.over(node.pods.values(), is_coming):
            if coming:
                cluster = cluster.without_pod(pod)
    asked = faults.over(cluster.pending.values(), passes)
    pending = {pod.uid: pod for pod, passing in asked if not passing}
    return replace(cluster, pending={**pending, **pods})


def _is_held(node: ClusterNode, pod: ClusterPod) -> bool:
    """Return whether the kubelet has given the pod anything; unknown counts as yes."""
    return node.state is None or node.state.holds(pod.kubelet_uid)


def is_next_pod(pod: ClusterPod) -> bool:
    """Return whether a pod of a plan does not exist yet: its owner creates it after a rejection."""
    return pod.controller is not None and pod.controller.uid == pod.uid


def _next_pod(rejected: ClusterPod, uid: str, template: ClusterPod) -> ClusterPod:
    made = replacement(rejected, {uid: template})
    admission = None if made.admission is None else replace(made.admission, uid=uid)
    return replace(made, uid=uid, admission=admission)
