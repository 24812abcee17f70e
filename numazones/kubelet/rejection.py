"""Ways in which an admission ends other than by admitting the pod.

Reasons and messages are those of ``pkg/kubelet/cm/admission`` and of the managers. A kubelet that
would crash or loop for ever gives no verdict at all; those cases are errors of their own, so that
nobody mistakes them for an admission.
"""

from numazones.errors import NumazonesError

UNEXPECTED = "UnexpectedAdmissionError"
TOPOLOGY_AFFINITY = "TopologyAffinityError"
SMT_ALIGNMENT = "SMTAlignmentError"
CREATE_CONTAINER_ERROR = "CreateContainerError"
"""Not of an admission, but of a waiting container: the runtime, or a plugin of it, did not create it."""
EMPTY_POD_SHARED_POOL = "EmptyPodSharedPoolError"
STATUS_PREFIX = "Pod was rejected: "
"""What kubelets write into a pod's status before the message of a rejection."""


class Rejection(Exception):
    """A manager rejects the pod; caught by ``admission``."""

    def __init__(self, message: str, *, reason: str = UNEXPECTED) -> None:
        if reason == UNEXPECTED:
            message = f"Allocate failed due to {message}, which is unexpected"
        super().__init__(message)
        self.reason = reason
        self.message = message


class KubeletCrash(NumazonesError):
    """The kubelet would crash on this pod; the message says where."""


class KubeletHang(NumazonesError):
    """The kubelet would never finish this admission; the message says where."""
