"""Owner of a pod as people name it: the Deployment, not its ReplicaSet."""

from numazones.cluster.cluster import ClusterPod
from numazones.wording import claimed_name

_TEMPLATE_HASH = "pod-template-hash"
"""Label that a Deployment gives its ReplicaSets' pods; the ReplicaSet's name ends with its value."""


def owner_of(pod: ClusterPod) -> tuple[str, str]:
    """Return kind and name of a pod's owner; both are empty if it has none.

    >>> from numazones import build
    >>> owner_of(ClusterPod.from_api(build.pod_body("web", cpu=2)))
    ('', '')
    """
    controller = pod.controller
    if controller is None:
        return "", ""
    kind, name = claimed_name(controller.kind), claimed_name(controller.name)
    suffix = f"-{pod.labels[_TEMPLATE_HASH]}" if _TEMPLATE_HASH in pod.labels else None
    if kind == "ReplicaSet" and suffix and name.endswith(suffix):
        return "Deployment", name.removesuffix(suffix)
    return kind, name
