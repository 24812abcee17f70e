"""Devices that the scheduler would allocate to a pod on a node, next to what the kubelet would give it."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Final, Self

from numazones import cpuset
from numazones.apimachinery.answer import or_left_out
from numazones.kubelet.machine import name_numas
from numazones.wording import enumeration

if TYPE_CHECKING:  # few pods have claims
    from numazones.dra.allocation import Allocated
    from numazones.dra.claims import DeviceClaim
    from numazones.dra.cluster_devices import ClusterDevices

ALIGNED, ALIGNMENT_UNKNOWN, NOT_ALIGNED = "aligned", "unknown", "notAligned"
_WORDS: Final = {ALIGNED: "aligned", ALIGNMENT_UNKNOWN: "alignment not known", NOT_ALIGNED: "not aligned"}
"""From the best to the worst."""
CANNOT_ALLOCATE: Final = "cannot allocate all claims"
"""The scheduler's words where a node has not the devices."""

Users = tuple[tuple[str, str], ...]
"""(container, request of a claim that it uses; empty: all of them)."""


@dataclass(frozen=True, slots=True)
class ForeseenDevice:
    """A device that the scheduler would allocate."""

    request: Annotated[str, "Request of the claim; REQUEST/ALTERNATIVE if it has alternatives."]
    driver: Annotated[str, "Its driver."]
    pool: Annotated[str, "Its pool, often named after the node."] = field(compare=False)
    device: Annotated[str, "Its name."]
    numa: Annotated[int | None, "NUMA node of the device; null if its driver does not report one."]
    pcie_roots: Annotated[
        tuple[str, ...],
        "PCIe root complexes of the device; left out if its driver reports none.",
        or_left_out,
    ] = ()
    containers: Annotated[
        tuple[str, ...], "Containers that use it; left out if none names it.", or_left_out
    ] = ()

    @property
    def full_name(self) -> str:
        """DRIVER/DEVICE."""
        return f"{self.driver}/{self.device}"


Shares = tuple[tuple[str, tuple[int, ...]], ...]
"""(container, NUMA nodes on which the kubelet gives it something)."""


@dataclass(frozen=True, slots=True)
class ContainerPlace:
    """Where a container's devices and the rest of it would be."""

    container: Annotated[str, "Name of the container; empty if only the pod as a whole is known."]
    numas: Annotated[tuple[int, ...], "NUMA nodes on which the kubelet gives it something."]
    devices: Annotated[tuple[str, ...], "Its devices, as DRIVER/DEVICE."]
    alignment: Annotated[str, "aligned, notAligned or unknown."]
    sentence: Annotated[str, "The alignment in words."]

    @classmethod
    def of(cls, container: str, numas: tuple[int, ...], devices: Sequence[ForeseenDevice]) -> Self:
        """Say whether one NUMA node has all of it."""
        near = {one.numa for one in devices}
        together = len({*numas, *near} - {None}) < 2  # noqa: PLR2004 - one NUMA node, or none
        alignment = (ALIGNMENT_UNKNOWN if None in near else ALIGNED) if together else NOT_ALIGNED
        rest = f"CPUs and memory on {name_numas(cpuset.of(numas))}" if numas else "CPUs of the shared pool"
        sentence = f"{enumeration(list(_places(devices)))}, {rest}: {_WORDS[alignment]}"
        return cls(container, numas, tuple(one.full_name for one in devices), alignment, sentence)


def _places(devices: Iterable[ForeseenDevice]) -> Iterator[str]:
    by_numa: dict[int | None, list[str]] = {}
    for one in devices:
        by_numa.setdefault(one.numa, []).append(one.full_name)
    for numa, names in by_numa.items():
        where = "an unknown NUMA node" if numa is None else name_numas(1 << numa)
        yield f"{enumeration(names)} on {where}"


@dataclass(frozen=True, slots=True)
class ForeseenAllocation:
    """Allocation of a pod's claims that have none yet, and what it was made from."""

    known: "ClusterDevices"
    allocated: "Allocated"
    named: tuple[str, ...]
    """NAMESPACE/NAME of the claims that other pods may use, too."""


@dataclass(frozen=True, slots=True)
class DeviceAnswer:
    """Devices that a pod would get on a node, or why it gets none there, or why that is not known."""

    fits: bool | None
    """True if the node has the devices; None: not known."""
    reason: str = ""
    """Why not, in one sentence."""
    message: str = ""
    """In the scheduler's words."""
    devices: tuple[ForeseenDevice, ...] = ()
    zones: tuple[int, ...] = ()
    """NUMA nodes on which the kubelet gives it something."""
    shares: Shares = ()
    """The same by container, of one that has several; none: only of the pod is that known."""
    several: bool = False
    """True if it has several containers that run at a time."""
    aborts: bool = False
    """True if an error here makes the scheduler give up on the pod, whatever other nodes have."""
    allocation: "ForeseenAllocation | None" = field(default=None, compare=False, repr=False)
    """Allocation; None: nothing is known, or the pod does not fit."""
    elsewhere: bool = field(default=False, compare=False)
    """True if other nodes see the difference, too."""

    @property
    def after(self) -> "ClusterDevices | None":
        """The cluster's devices once these are allocated; None if they do not fit."""
        found = self.allocation
        return None if found is None else found.known.after(found.allocated, found.named)

    @property
    def made(self) -> "tuple[DeviceClaim, ...]":
        """The pod's claims as far as they would hold devices that are allocated now."""
        return () if self.allocation is None else self.allocation.allocated.made

    @property
    def containers(self) -> tuple[ContainerPlace, ...]:
        """Where each container's devices and the rest of it are, of those that use devices.

        A device that no container uses counts only where none uses any.
        """
        if not self.devices:
            return ()
        if not (self.several and self.shares):
            return (self._whole(),)
        found = tuple(
            ContainerPlace.of(name, numas, used)
            for name, numas in self.shares
            if (used := [one for one in self.devices if name in one.containers])
        )
        return found or (self._whole(),)

    def _whole(self) -> ContainerPlace:
        """The pod as one; of several containers apart it is not known which uses what."""
        used = [one for one in self.devices if one.containers] or self.devices
        whole = ContainerPlace.of("", self.zones, used)
        if whole.alignment == NOT_ALIGNED and self.several:
            sentence = whole.sentence.replace(_WORDS[NOT_ALIGNED], _WORDS[ALIGNMENT_UNKNOWN])
            return replace(whole, alignment=ALIGNMENT_UNKNOWN, sentence=sentence)
        return whole

    @property
    def alignment(self) -> str:
        """Return whether for each container one NUMA node has its devices and all that it has exclusively."""
        if not self.fits:
            return ALIGNMENT_UNKNOWN
        order = tuple(_WORDS)
        return max((one.alignment for one in self.containers), key=order.index, default=ALIGNED)

    @property
    def sentence(self) -> str:
        """Where devices and the rest lie, or why there are none."""
        if not self.fits:
            return self.reason
        return "; ".join(
            f"container {one.container}: {one.sentence}" if one.container else one.sentence
            for one in self.containers
        )


def alignment_rank(alignment: str) -> int:
    """Return what nodes are sorted by that would admit a pod, the best first; empty: it needs no devices."""
    return tuple(_WORDS).index(alignment) if alignment else 0
