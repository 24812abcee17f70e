"""Device requests of a pod, in the units in which devices are assigned.

Rules: ``deviceshare/utils`` (which resources may be combined, what they stand for) and
``devicehandler_gpu`` (how many devices, how much of each). Modelled are GPUs, and RDMA and FPGA devices as
plain counts; hints for devices, joint allocation, GPU partitions and the NPUs of one vendor are not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from numazones.apimachinery.quantity import Quantity
from numazones.errors import UnmodelledFeature
from numazones_koordinator import annotations as api
from numazones_koordinator.amounts import NANO, Amounts, whole
from numazones_koordinator.annotation_json import UnreadableAnnotation
from numazones_koordinator.device_inventory import GPU
from numazones_koordinator.status import unresolvable

GPU_CORE = "koordinator.sh/gpu-core"
GPU_MEMORY = "koordinator.sh/gpu-memory"
GPU_MEMORY_RATIO = "koordinator.sh/gpu-memory-ratio"
GPU_SHARED = "koordinator.sh/gpu.shared"
_KOORD_GPU = "koordinator.sh/gpu"
_RDMA = "koordinator.sh/rdma"
_FPGA = "koordinator.sh/fpga"
# Whole GPUs by their vendors' names, one piece each.
_VENDOR_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "dcu.com/gpu")
_NPUS = ("huawei.com/npu-core", "huawei.com/npu-cpu", "huawei.com/npu-dvpp")
_GPU_RESOURCES = (*_VENDOR_GPUS, _KOORD_GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, *_NPUS)
_TYPES = {GPU: _GPU_RESOURCES, "rdma": (_RDMA,), "fpga": (_FPGA,)}
_PERCENTAGES = frozenset({_KOORD_GPU, _RDMA, _FPGA})
_COMBINATIONS = frozenset(
    frozenset(names)
    for names in (
        *((name,) for name in (*_VENDOR_GPUS, _KOORD_GPU, GPU_MEMORY, GPU_MEMORY_RATIO, _RDMA, _FPGA)),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
        (GPU_SHARED, GPU_MEMORY),
        (GPU_SHARED, GPU_MEMORY_RATIO),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO),
    )
)
_WHOLE_DEVICE = 100
_UNMODELLED = (api.DEVICE_ALLOCATE_HINT, api.DEVICE_JOINT_ALLOCATE, api.GPU_PARTITION_SPEC)


@dataclass(frozen=True, slots=True)
class DeviceShare:
    """Request of a pod for one type of device."""

    count: int
    each: Amounts
    """From every device."""


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Request of a pod for devices."""

    shares: Mapping[str, DeviceShare]
    """By device type."""
    shared_gpu: bool = False
    """Less than a whole GPU is asked of each."""
    isolation_provider: str = ""
    """The pod's label: who is to keep pods on one GPU apart."""
    types: tuple[str, ...] = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", tuple(sorted(self.shares)))


def device_request(
    amounts: Amounts, labels: Mapping[str, str], annotations: Mapping[str, str]
) -> DeviceRequest | None:
    """Read what a pod asks of devices; None: nothing.

    Raises:
        Rejected: the resources asked for don't go together.
        UnmodelledFeature: the pod uses a feature that is not modelled.
    """
    asked = {name: amount for name, amount in amounts.items() if amount}
    shares = {}
    shared_gpu = False
    for type_, names in _TYPES.items():
        own = {name: asked[name] for name in names if name in asked}
        if own:
            _check(own)
            if type_ == GPU:
                shares[type_], shared_gpu = _gpu_share(_in_percent(own))
            else:
                shares[type_] = _plain_share(own)
    try:
        api.device_allocations(annotations)
    except UnreadableAnnotation as error:
        raise unresolvable(str(error)) from None
    if not shares:
        return None
    for key in _UNMODELLED:
        if key in annotations:
            raise UnmodelledFeature(
                f"the pod's annotation {key} is not modelled, so nothing is predicted for the "
                "pod; remove the annotation to change that"
            )
    return DeviceRequest(shares, shared_gpu, labels.get(api.GPU_ISOLATION_PROVIDER, ""))


def _check(own: Amounts) -> None:
    """Reject amounts and combinations that no device serves."""
    for name, amount in own.items():
        if name in _PERCENTAGES and not _whole_or_part(amount):
            raise unresolvable(f"invalid resource unit {name}: {Quantity(amount).canonical()}")
    if any(name in own for name in _NPUS):
        raise UnmodelledFeature(
            f"requests of {', '.join(name for name in _NPUS if name in own)} are not modelled, "
            "so nothing is predicted for pods with them"
        )
    if frozenset(own) not in _COMBINATIONS or not _sensible(own):
        raise unresolvable(f"invalid resource device requests: [{' '.join(sorted(own))}]")


def _whole_or_part(amount: int) -> bool:
    """Return whether a share is at most one device, or a whole number of devices (percent)."""
    return whole(amount) <= _WHOLE_DEVICE or whole(amount) % _WHOLE_DEVICE == 0


def _sensible(own: Amounts) -> bool:
    """Return whether the core and memory ratios fit the number of GPUs."""
    percentages = [whole(own[name]) for name in (GPU_CORE, GPU_MEMORY_RATIO) if name in own]
    if GPU_SHARED in own:
        gpus = whole(own[GPU_SHARED])
        return all(amount % gpus == 0 and amount // gpus <= _WHOLE_DEVICE for amount in percentages)
    if GPU_CORE in own or GPU_MEMORY_RATIO in own:
        return all(amount <= _WHOLE_DEVICE or amount % _WHOLE_DEVICE == 0 for amount in percentages)
    return True


def _in_percent(own: Amounts) -> Amounts:
    """GPUs by a vendor's name or as ``koordinator.sh/gpu``, in percent of core and memory."""
    for name in _VENDOR_GPUS:
        if name in own:
            percent = whole(own[name]) * _WHOLE_DEVICE * NANO
            return {GPU_CORE: percent, GPU_MEMORY_RATIO: percent}
    if _KOORD_GPU in own:
        return {GPU_CORE: own[_KOORD_GPU], GPU_MEMORY_RATIO: own[_KOORD_GPU]}
    return own


def _gpu_share(asked: Amounts) -> tuple[DeviceShare, bool]:
    """The share of every GPU, and whether it is less than the whole."""
    count = 1
    ratio = whole(asked.get(GPU_MEMORY_RATIO, 0))
    if asked.get(GPU_SHARED, 0) > 0:
        count = whole(asked[GPU_SHARED])
    elif ratio > _WHOLE_DEVICE and ratio % _WHOLE_DEVICE == 0:
        count = ratio // _WHOLE_DEVICE
    each = {}
    if GPU_CORE in asked:
        each[GPU_CORE] = whole(asked[GPU_CORE]) // count * NANO
    if GPU_MEMORY_RATIO in asked:
        each[GPU_MEMORY_RATIO] = ratio // count * NANO
        return DeviceShare(count, each), ratio // count < _WHOLE_DEVICE
    each[GPU_MEMORY] = whole(asked[GPU_MEMORY]) // count * NANO
    return DeviceShare(count, each), True


def _plain_share(asked: Amounts) -> DeviceShare:
    """Devices that are given out by percent: several whole ones, or a part of one."""
    ((name, amount),) = asked.items()
    percent = whole(amount)
    if percent > _WHOLE_DEVICE and percent % _WHOLE_DEVICE == 0:
        count = percent // _WHOLE_DEVICE
        return DeviceShare(count, {name: percent // count * NANO})
    return DeviceShare(1, asked)
