"""What the allocator answers: the devices of each claim, or why there are none.

Four kinds of answer: ``Allocated``, ``DoesNotFit`` (on this node), ``AllocationFailed`` (the scheduler gives
up on the pod, whatever the node) and ``AllocationUnknown`` (nobody here can say; the reason is named).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from numazones.apimachinery.quantity import Quantity
from numazones.apimachinery.taints import Toleration
from numazones.dra.claims import Allocation, DeviceClaim, DeviceConfiguration
from numazones.dra.devices import Key, PublishedDevice

_FORESEEN: Final = "foreseen"
"""Id of a share that is not allocated yet."""


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device, or a part of one, that a request gets."""

    request: str
    """REQUEST, or REQUEST/ALTERNATIVE."""
    device: PublishedDevice
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    shared: bool = False
    """Whether others may be allocated the same device, so that the share gets an id."""
    consumed: Mapping[str, Quantity] = field(default_factory=dict, hash=False)
    """Name of a capacity as the device has it → amount; of shared devices only."""
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    @property
    def key(self) -> Key:
        """What names the device in the cluster."""
        return self.device.key

    @property
    def main_request(self) -> str:
        """The claim's request, whichever alternative was taken."""
        return self.request.partition("/")[0]


@dataclass(frozen=True, slots=True)
class AllocatedConfiguration:
    """Parameters for a driver, with the requests that they are for."""

    from_class: bool
    requests: tuple[str, ...]
    configuration: DeviceConfiguration


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """A condition on the nodes from which the devices of a claim can be used."""

    key: str
    operator: str
    values: tuple[str, ...]
    on_field: bool = False
    """Whether it is on a field of the node; otherwise on a label."""


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """What one claim gets."""

    claim: str
    """NAMESPACE/NAME."""
    devices: tuple[AllocatedDevice, ...] = ()
    configurations: tuple[AllocatedConfiguration, ...] = ()
    requirements: tuple[NodeRequirement, ...] = ()
    """Conditions on the node, all of which must hold; none: any node will do."""
    alternatives: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Request → position of the alternative that was taken."""


@dataclass(frozen=True, slots=True)
class Allocated:
    """All claims get their devices."""

    claims: tuple[ClaimAllocation, ...]
    """In the order in which they were asked for."""
    steps: int = 0
    """How many steps the search took; equal to the scheduler's."""

    @property
    def made(self) -> tuple[DeviceClaim, ...]:
        """Return the claims as far as they hold what is allocated."""
        return tuple(
            DeviceClaim(
                one.claim.partition("/")[0],
                one.claim.partition("/")[2],
                allocated=True,
                allocations=tuple(
                    Allocation(
                        given.key,
                        given.request,
                        _FORESEEN if given.shared else "",
                        given.admin,
                        given.consumed,
                        bool(given.consumed),
                        one.claim,
                    )
                    for given in one.devices
                ),
            )
            for one in self.claims
        )


@dataclass(frozen=True, slots=True)
class DoesNotFit:
    """The node has not the devices."""

    steps: int = 0
    message: str = ""
    """What the scheduler says beyond "cannot allocate all claims"; empty: nothing."""
    _explain: Callable[[], str] = field(default=str, repr=False, compare=False)

    @property
    def reason(self) -> str:
        """What is missing, in one sentence; found out when it is asked for."""
        return self._explain()


@dataclass(frozen=True, slots=True)
class AllocationFailed:
    """An error: the scheduler gives up on the pod."""

    message: str
    """The scheduler's."""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class AllocationUnknown:
    """It is not known what the scheduler would allocate."""

    reason: str
    """Why, in one sentence."""
    steps: int = 0


AllocationOutcome = Allocated | DoesNotFit | AllocationFailed | AllocationUnknown
