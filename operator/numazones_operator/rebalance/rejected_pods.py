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

from numazones.apimachinery import timestamp
from numazones.cluster.cluster import Cluster, ClusterNode, ClusterPod
from numazones.cluster.waiting import GATE
from numazones.placement import ADMITTED
from numazones.placement.model import kubelet_verdict
from numazones.rebalance.moves import replacement

_MAX_PAUSE = timedelta(minutes=10)
"""A loop in which nobody was rejected for so long is over; a Job's controller pauses up to 6 minutes."""
_NEVER = datetime.min.replace(tzinfo=UTC)


def next_pods(
    pods: Iterable[ClusterPod], template: Callable[[str], ClusterPod | None], now: datetime
) -> dict[str, ClusterPod]:
    """Return, by the owner's UID, the pod that each owner makes next whose newest pod a kubelet rejected.

    ``template`` gives the pod that an owner would make, by the owner's UID; None for one that is gone.
    """
    known = list(pods)
    troubled = {pod.controller.uid for pod in known if pod.phase == "Failed" and pod.controller is not None}
    newest: dict[str, tuple[datetime, ClusterPod]] = {}
    for pod in known if troubled else ():
        owner = pod.controller
        if owner is None or owner.uid not in troubled or kubelet_verdict(pod) is None:
            continue
        created = _NEVER if not pod.created else timestamp.parse(pod.created)
        if owner.uid not in newest or _order(created, pod) > _order(*newest[owner.uid]):
            newest[owner.uid] = (created, pod)
    found = {}
    for uid, (created, pod) in newest.items():
        if kubelet_verdict(pod) == ADMITTED or now - created >= _MAX_PAUSE:
            continue
        made = template(uid)
        if made is not None and GATE not in made.constraints.scheduling_gates:
            found[uid] = _next_pod(pod, uid, made)
    return found


def with_next_pods(cluster: Cluster, pods: Mapping[str, ClusterPod]) -> Cluster:
    """Return the cluster in which the next pod of each owner in a loop waits.

    It stands in for those that wait at the moment, and for those that a kubelet is about to reject.
    """

    def passes(pod: ClusterPod) -> bool:
        return pod.controller is not None and pod.controller.uid in pods

    for node in cluster.nodes.values() if pods else ():
        for pod in node.pods.values():
            if passes(pod) and kubelet_verdict(pod) is None and not _is_held(node, pod):
                cluster = cluster.without_pod(pod)
    pending = {uid: pod for uid, pod in cluster.pending.items() if not passes(pod)}
    return replace(cluster, pending={**pending, **pods})


def _is_held(node: ClusterNode, pod: ClusterPod) -> bool:
    """Return whether the kubelet has given the pod anything; unknown counts as yes."""
    return node.state is None or node.state.holds(pod.kubelet_uid)


def is_next_pod(pod: ClusterPod) -> bool:
    """Return whether a pod of a plan does not exist yet: its owner creates it after a rejection."""
    return pod.controller is not None and pod.controller.uid == pod.uid


def _order(created: datetime, pod: ClusterPod) -> tuple[datetime, bool, str]:
    """Order pods by creation, in whole seconds; of equals, those that were rejected count as later."""
    return created, kubelet_verdict(pod) != ADMITTED, pod.name


def _next_pod(rejected: ClusterPod, uid: str, template: ClusterPod) -> ClusterPod:
    made = replacement(rejected, {uid: template})
    admission = None if made.admission is None else replace(made.admission, uid=uid)
    return replace(made, uid=uid, admission=admission)
