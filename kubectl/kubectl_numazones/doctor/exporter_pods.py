"""The exporter's pods, and why one of them publishes nothing for its node."""

from kubectl_numazones.doctor.evidence import EXPORTER, Evidence
from kubectl_numazones.doctor.reading_cures import CURES
from kubectl_numazones.reading.files import Object
from numazones.cluster.cluster import ClusterNode, is_true
from numazones.kubelet.constraints import Constraints

_NO_DIRECTORY = "hostPath type check failed"
"""What kubelets say of a mount whose directory is not there; the exporter mounts their own."""


class ExporterPods:
    """The exporter's pods by node."""

    def __init__(self, evidence: Evidence) -> None:
        """Find them; of several on one node the first counts."""
        self._evidence = evidence
        self._pods: dict[str, Object] = {}
        for pod in evidence.pods_of(EXPORTER):
            self._pods.setdefault(str((pod.get("spec") or {}).get("nodeName") or ""), pod)

    def selector_that_leaves_out(self, node: ClusterNode) -> str:
        """Return the node selector of the DaemonSet that keeps its pods from a node; empty if none does."""
        if not self._pods or node.name in self._pods:
            return ""
        wanted = self._constraints.node_selector
        return ",".join(f"{key}={value}" for key, value in wanted if node.labels.get(key) != value)

    def why_silent(self, node: ClusterNode) -> tuple[str, str]:
        """(why a node's exporter does not publish, cure), by what its pod says, and events about that."""
        if not self._pods:
            return "no exporter pods were found", "kubectl apply -k manifests/exporter"
        pod = self._pods.get(node.name)
        if pod is None:
            return self._why_missing(node)
        name = f"-n {namespace_of(pod)} {pod['metadata']['name']}"
        trouble = trouble_of(pod)
        if not trouble:
            return f"pod {pod['metadata']['name']} is running and ready", f"kubectl logs {name}"
        unmounted = self._failed_mount(pod)
        said = f"pod {pod['metadata']['name']} {trouble}{f': {unmounted}' if unmounted else ''}"
        if _NO_DIRECTORY in unmounted:
            return said, CURES["KubeletFilesMissing"]
        return said, f"kubectl describe pod {name}"

    @property
    def _constraints(self) -> Constraints:
        """Return the constraints that the DaemonSet gives all its pods."""
        return Constraints.from_api(next(iter(self._pods.values())).get("spec") or {})

    def _why_missing(self, node: ClusterNode) -> tuple[str, str]:
        tolerant = self._constraints
        kept_away = [taint for taint in node.taints if not tolerant.tolerates(taint)]
        if kept_away:
            taints = ", ".join(f"{taint.key}:{taint.effect}" for taint in kept_away)
            return f"its taint {taints} keeps the exporter away", (
                "add a toleration to the exporter's DaemonSet"
            )
        namespace = namespace_of(next(iter(self._pods.values())))
        return (
            "the exporter's DaemonSet has no pod there",
            f"kubectl -n {namespace} describe daemonset {EXPORTER}",
        )

    def _failed_mount(self, pod: Object) -> str:
        """Return the kubelet's last message about volumes it cannot mount for a pod; empty if there is none.

        The pod's status shows ``ContainerCreating`` alone, for ever.
        """
        about = [
            event
            for event in self._evidence.of("Event")
            if event.get("reason") == "FailedMount"
            and (event.get("involvedObject") or {}).get("uid") == pod["metadata"].get("uid")
        ]
        latest = max(about, key=lambda event: str(event.get("lastTimestamp") or ""), default=None)
        return "" if latest is None else str(latest.get("message") or "")


def trouble_of(pod: Object) -> str:
    """Return what keeps a pod from working, in the kubelet's words; empty if it is ready."""
    status = pod.get("status") or {}
    if is_true(status, "Ready"):
        return ""
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        state = container.get("state") or {}
        for kind in ("waiting", "terminated"):
            if state.get(kind):
                said = state[kind].get("message")
                return f"is {state[kind].get('reason', kind)}" + (f" ({said})" if said else "")
    said = status.get("message") or status.get("reason")
    return f"is {status.get('phase', 'not ready')}, not ready" + (f" ({said})" if said else "")


def namespace_of(item: Object) -> str:
    """Return an object's namespace."""
    return str(item["metadata"].get("namespace") or "default")
