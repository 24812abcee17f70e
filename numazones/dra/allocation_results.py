"""Makes the result of a search into what the scheduler writes into the status of claims.

Rules: the end of ``Allocate`` and ``createNodeSelector`` in ``structured/internal`` of Kubernetes 1.36.3.
"""

from collections.abc import Iterator, Mapping, Sequence

from numazones.dra.allocation import (
    AllocatedConfiguration,
    AllocatedDevice,
    ClaimAllocation,
    NodeRequirement,
)
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Reach
from numazones.dra.search import Ask, Chosen, Search
from numazones.dra.slices import Candidate, Place


def claim_allocations(
    place: Place, claims: Sequence[DeviceClaim], search: Search, classes: Mapping[str, DeviceClass]
) -> tuple[ClaimAllocation, ...]:
    """Return what each claim gets after a search that was successful."""
    found = []
    for c, claim in enumerate(claims):
        results = search.results[c]
        alternatives = {
            request.name: search.chosen[c, r]
            for r, request in enumerate(claim.requests)
            if request.prioritized
        }
        asks = [search.asks[c][r][search.chosen.get((c, r), 0)] for r in range(len(claim.requests))]
        found.append(
            ClaimAllocation(
                claim.full_name,
                tuple(_device(one, search) for one in results),
                (*_of_classes(asks, classes), *_of_claim(claim, asks)),
                tuple(_requirements(place, [search.offer.devices[one.at] for one in results])),
                alternatives,
            )
        )
    return tuple(found)


def _device(chosen: Chosen, search: Search) -> AllocatedDevice:
    device = search.offer.devices[chosen.at].device
    shared = search.offer.shareable[chosen.at]
    return AllocatedDevice(
        request=chosen.ask.name,
        device=device,
        admin=bool(chosen.ask.choice.admin),
        tolerations=chosen.ask.choice.tolerations,
        shared=shared,
        consumed=dict(chosen.amounts or {}),
        binding_conditions=device.binding_conditions if search.rules.binding else (),
        binding_failure_conditions=device.binding_failure_conditions if search.rules.binding else (),
    )


def _of_classes(asks: Sequence[Ask], classes: Mapping[str, DeviceClass]) -> Iterator[AllocatedConfiguration]:
    """Each class once, with all requests for it."""
    for name in dict.fromkeys(ask.choice.device_class for ask in asks):
        requests = tuple(ask.name for ask in asks if ask.choice.device_class == name)
        for configuration in classes[name].configurations:
            yield AllocatedConfiguration(True, requests, configuration)


def _of_claim(claim: DeviceClaim, asks: Sequence[Ask]) -> Iterator[AllocatedConfiguration]:
    """Those without requests once, the others once for each request that they name."""
    for configuration in claim.configurations:
        times = 1
        if configuration.requests:
            times = sum(bool({ask.request, ask.name} & set(configuration.requests)) for ask in asks)
        for _ in range(times):
            yield AllocatedConfiguration(False, configuration.requests, configuration)


def _requirements(place: Place, devices: Sequence[Candidate]) -> Iterator[NodeRequirement]:
    """This node where a device is bound to one; else what the node selectors of all devices require."""
    reaches = [_reach(candidate) for candidate in devices]
    if any(reach.node for reach in reaches) or any(one.device.binds_to_node for one in devices):
        yield NodeRequirement("metadata.name", "In", (place.name,), on_field=True)
        return
    seen = set()
    for reach in reaches:
        for term in reach.terms or ():
            for on_field, requirements in ((False, term.expressions), (True, term.fields)):
                for one in requirements:
                    same = (on_field, one.key, one.operator, frozenset(one.values))
                    if same not in seen:
                        seen.add(same)
                        yield NodeRequirement(one.key, one.operator, one.values, on_field=on_field)


def _reach(candidate: Candidate) -> Reach:
    return candidate.device.reach if candidate.slice.per_device else candidate.slice.reach
