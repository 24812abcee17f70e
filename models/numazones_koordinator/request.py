"""Request that the scheduler derives from a pod once per scheduling cycle: PreFilter of both plugins.

Rules: ``nodenumaresource/plugin.PreFilter``; ``deviceshare/utils`` and ``devicehandler_gpu``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from numazones.apimachinery.resources import CPU
from numazones.kubelet.pod import Pod
from numazones_koordinator import annotations as api
from numazones_koordinator.amounts import (
    Amounts,
    Counted,
    nothing,
    requests,
    scheduler_counts,
)
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.annotations import (
    CPUBindPolicy,
    Exclusive,
    NUMATopologySpec,
    ResourceSpec,
)
from numazones_koordinator.device_request import DeviceRequest, device_request
from numazones_koordinator.scheduler import Scheduler
from numazones_koordinator.status import SKIP, SUCCESS, Code, Rejected, Status, unresolvable

CPUS_NOT_INTEGER = "the requested CPUs must be integer"
_NO_NUMA_SPEC = NUMATopologySpec()
_NO_SPEC = ResourceSpec()
_BINDING = frozenset({CPUBindPolicy.FULL_PCPUS, CPUBindPolicy.SPREAD_BY_PCPUS})


@dataclass(frozen=True, slots=True)
class Request:
    """A pod as the plugins see it."""

    pod: Pod = field(repr=False)
    status: Status
    """Of PreFilter; Skip: the pod asks for nothing."""
    amounts: Amounts = field(default_factory=dict)
    counted: Counted = field(default_factory=dict)
    numa: NUMATopologySpec = _NO_NUMA_SPEC
    spec: ResourceSpec = _NO_SPEC
    bound: bool = False
    """The pod gets CPUs of its own on every node."""
    required_bind_policy: str = ""
    preferred_bind_policy: str = ""
    exclusive_policy: str = ""
    """Counts for the pod's own CPUs; empty for pods that are bound by the node alone."""
    devices: DeviceRequest | None = None
    """None: the pod asks for no device."""
    device_status: Status = SKIP

    @property
    def cpu_milli(self) -> int:
        """CPU in thousandths."""
        return self.counted.get(CPU, 0)

    @property
    def cpus(self) -> int:
        """Whole CPUs."""
        return self.cpu_milli // 1000

    @property
    def exclusive(self) -> str:
        """Return how strictly NUMA nodes are exclusive; required by default if the pod has its own policy."""
        if not self.numa.exclusive and self.numa.policy:
            return Exclusive.REQUIRED
        return self.numa.exclusive

    @classmethod
    def of(cls, pod: Pod, scheduler: Scheduler) -> "Request":
        """Read a pod.

        Raises:
            UnmodelledFeature: the pod asks for devices in a way that is not modelled.
        """
        annotations, labels = dict(pod.annotations), dict(pod.labels)
        amounts = requests(pod)
        status, devices, device_status = SUCCESS, None, SKIP
        spec, numa = ResourceSpec(), NUMATopologySpec()
        try:
            spec = api.resource_spec(annotations)
            numa = api.numa_topology_spec(annotations)
        except UnreadableAnnotation as error:
            return cls(pod, Status(Code.ERROR, (str(error),)))
        if scheduler.device_share:
            try:
                devices = device_request(amounts, labels, annotations)
                device_status = SKIP if devices is None else SUCCESS
            except Rejected as rejected:
                device_status = rejected.status
        request = cls(
            pod,
            status,
            amounts,
            scheduler_counts(amounts),
            numa,
            spec,
            devices=devices,
            device_status=device_status,
        )
        if nothing(amounts):
            return replace(request, status=SKIP)
        try:
            return request._with_binding(labels, scheduler)
        except Rejected as rejected:
            return replace(request, status=rejected.status)

    def _with_binding(self, labels: Mapping[str, str], scheduler: Scheduler) -> "Request":
        """The request with the CPU policies that count.

        Raises:
            Rejected: a pod that is to be bound asks for a fraction of a CPU.
        """
        if not api.may_bind_cpus(labels, self.pod.priority):
            return self
        preferred = self.spec.preferred_bind_policy
        if preferred in {"", CPUBindPolicy.DEFAULT}:
            preferred = scheduler.default_bind_policy
        required = self.spec.required_bind_policy
        if required == CPUBindPolicy.DEFAULT:
            required = scheduler.default_bind_policy
        effective = required or preferred
        if effective not in _BINDING:
            return self
        if self.cpu_milli % 1000:
            raise unresolvable(CPUS_NOT_INTEGER)
        if self.cpu_milli <= 0:
            return self
        return replace(
            self,
            bound=True,
            required_bind_policy=required,
            preferred_bind_policy=effective,
            exclusive_policy=self.spec.exclusive_policy,
        )
