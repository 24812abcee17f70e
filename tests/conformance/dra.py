"""Vectors of the structured DRA allocator: scenarios, selectors, and pods with extended resources.

Schema: ``conformance/dra/README.md`` next to the vectors. The fields of a line say which of the three it is.
"""

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from numazones.apimachinery.cel.values import Unsupported
from numazones.apimachinery.quantity import Quantity, parse
from numazones.apimachinery.taints import Toleration
from numazones.dra.allocated import AllocatedDevices
from numazones.dra.allocation import (
    Allocated,
    AllocatedConfiguration,
    AllocatedDevice,
    AllocationFailed,
    AllocationOutcome,
    AllocationUnknown,
    ClaimAllocation,
    NodeRequirement,
)
from numazones.dra.allocator import Allocator
from numazones.dra.claims import DeviceClaim
from numazones.dra.device_classes import DeviceClass
from numazones.dra.devices import Slice
from numazones.dra.extended_resources import classes_by_resource, extended_claim
from numazones.dra.rules import (
    ADMIN_ACCESS,
    BINDING,
    CLAIM_STATUS,
    CONSUMABLE,
    LISTS,
    PARTITIONABLE,
    PRIORITIZED_LIST,
    TAINTS,
    AllocatorRules,
    of_features,
)
from numazones.dra.selectors import InvalidDeviceSelector, selector
from numazones.dra.slices import AllocationNode, DeviceSlices
from numazones.errors import NumazonesError
from tests.conformance.comparison import Difference, unequal

_DEFAULTS = dict.fromkeys(
    (ADMIN_ACCESS, BINDING, CLAIM_STATUS, CONSUMABLE, PARTITIONABLE, PRIORITIZED_LIST, TAINTS), True
)
_AMOUNTS = ("consumed", "consumedCapacity")
_INFORMATIVE = ("sliceOrderDependent",)
_OUTCOMES = ("expect", "result", "runtimeError", "compileError", "cost", "maxCost")

Scenario = Mapping[str, Any]


def replay(scenario: Scenario) -> dict[str, Any]:
    """The line with this model's outcome; whatever outcome it came with is dropped."""
    given = {key: value for key, value in scenario.items() if key not in _OUTCOMES}
    try:
        if "expression" in given:
            return {**given, **_selected(given)}
        if "pod" in given:
            return {**given, "expect": _extended(given)}
        return {**given, "expect": _scheduled(given)}
    except NumazonesError as error:
        return {**given, "error": str(error)}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return {**given, "error": f"no scenario in the vectors' schema: {error!r}"}


def differences(expected: Scenario, actual: Scenario) -> Iterator[Difference]:
    """All differences of one line; a selector that is not known here may have any value.

    The checker's texts of compile errors are not compared.
    """
    name = str(expected.get("id"))
    if "expression" in expected:
        yield from _of_selector(name, expected, actual)
        return
    if expected["expect"].get("unstable"):
        return
    if "error" in actual:
        yield Difference(name, None, "error", None, actual["error"])
        return
    theirs, ours = _comparable(expected["expect"]), _comparable(actual["expect"])
    for step, pair in enumerate(zip(theirs.pop("results", ()), ours.pop("results", ()), strict=False)):
        for path, one, other in unequal("", *pair):
            yield Difference(name, step, path, one, other)
    for path, one, other in unequal("", theirs, ours):
        yield Difference(name, None, path, one, other)


def _of_selector(name: str, expected: Scenario, actual: Scenario) -> Iterator[Difference]:
    if "unknown" in actual:
        return
    for path in ("result", "runtimeError", "error"):
        if expected.get(path) != actual.get(path):
            yield Difference(name, None, path, expected.get(path), actual.get(path))
    theirs, ours = (line.get("compileError") for line in (expected, actual))
    if bool(theirs) != bool(ours):
        yield Difference(name, None, "compileError", theirs, ours)


def _comparable(value: Any, within: str = "") -> Any:
    """A value with amounts instead of their texts."""
    if isinstance(value, Mapping):
        return {
            key: _comparable(one, "amount" if within in _AMOUNTS else key)
            for key, one in value.items()
            if key not in _INFORMATIVE
        }
    if isinstance(value, list):
        return [_comparable(one) for one in value]
    return parse(value).nanos if within == "amount" else value


# --- selectors -------------------------------------------------------------------------------


def _selected(line: Scenario) -> dict[str, Any]:
    gates, body = line.get("featureGates") or {}, line.get("device")
    try:
        compiled = selector(line["expression"], lists=gates.get(LISTS, False))
        if body is None:
            return {"result": True}
        device = {"name": "device", **{key: value for key, value in body.items() if key != "driver"}}
        spec = {"driver": body["driver"], "pool": {"name": "pool"}, "devices": [device]}
        (published,) = Slice.from_api({"metadata": {"name": "slice"}, "spec": spec}).devices
        result, cost = compiled.evaluate(published, shareable=published.shareable)
    except InvalidDeviceSelector as error:
        return {"compileError": str(error)}
    except Unsupported as error:
        return {"unknown": str(error)}
    told = {"result": result} if isinstance(result, bool) else {"runtimeError": result.message}
    return {**told, "cost": cost} if cost else told


# --- extended resources ----------------------------------------------------------------------


def _extended(line: Scenario) -> dict[str, Any]:
    classes = classes_by_resource(map(DeviceClass.from_api, line["deviceClasses"]))
    allocatable, spec = line.get("allocatable") or {}, line["pod"]["spec"]
    found = extended_claim(spec, classes, allocatable)
    told: dict[str, Any] = {"wanted": bool(extended_claim(spec, classes, {}).requests)}
    if found.missing:
        return {**told, "cannotFit": True}
    if not found.requests:
        return told
    requests = [
        {
            "name": request.name,
            "exactly": {
                "deviceClassName": choice.device_class,
                "allocationMode": choice.mode,
                "count": choice.count,
            },
        }
        for request in found.requests
        for choice in request.choices
    ]
    mappings = [
        {"containerName": one.container, "resourceName": one.resource, "requestName": one.request}
        for one in found.mappings
    ]
    return {**told, "requests": requests, "requestMappings": mappings}


# --- allocations -----------------------------------------------------------------------------


def _scheduled(line: Scenario) -> dict[str, Any]:
    rules = rules_of(line)
    classes = [DeviceClass.from_api(body) for body in line["deviceClasses"]]
    slices = DeviceSlices(Slice.from_api(body) for body in line["resourceSlices"])
    claims = [DeviceClaim.from_api(body) for body in line["claims"]]
    allocated = allocated_of(line, rules)
    allocator = Allocator(slices, {one.name: one for one in classes}, allocated, rules)
    told: dict[str, Any] = {"allocator": rules.implementation}
    if line.get("allocatedClaims"):
        told["allocatedState"] = _state(line, allocated)
    told["results"] = []
    for node in line["nodes"]:
        place = place_of(node)
        outcome = allocator.allocate(place, claims)
        told["results"].append({"node": place.name, **_outcome(outcome, count(1))})
    return told


def place_of(node: Mapping[str, Any]) -> AllocationNode:
    """A node of a scenario."""
    return AllocationNode(node["metadata"]["name"], node["metadata"].get("labels") or {})


def rules_of(line: Scenario) -> AllocatorRules:
    """The allocator's rules in a scenario."""
    gates = {**_DEFAULTS, **(line.get("featureGates") or {})}
    on = {name for name, value in gates.items() if value}
    lists = LISTS in on
    if not line.get("allocatorListTypeAttributes"):
        on -= {LISTS}
    return of_features(on, lists_in_selectors=lists, implementation=line.get("allocator"))


def allocated_of(line: Scenario, rules: AllocatorRules) -> AllocatedDevices:
    """Return what claims hold before a scenario."""
    given = line.get("allocatedState")
    if not given:
        claims = map(DeviceClaim.from_api, line.get("allocatedClaims") or ())
        return AllocatedDevices.of_claims(claims, shares=rules.consumable)
    return AllocatedDevices(
        frozenset(_key(one) for one in given.get("devices") or ()),
        frozenset(_key(one) for one in given.get("sharedDevices") or ()),
        {
            _key(one): {name: parse(amount).nanos for name, amount in (one.get("consumed") or {}).items()}
            for one in given.get("capacity") or ()
        },
    )


def _key(body: Mapping[str, Any]) -> tuple[str, str, str]:
    return body["driver"], body["pool"], body["device"]


def _state(line: Scenario, allocated: AllocatedDevices) -> dict[str, Any]:
    """Return what claims hold, in the vectors' format: shares by their ids."""
    shares = [
        {**_named(one.device), "shareID": one.share}
        for body in line["allocatedClaims"]
        for one in DeviceClaim.from_api(body).allocations
        if one.device in allocated.shared and one.share and not one.admin
    ]
    return {
        "devices": [_named(key) for key in sorted(allocated.devices)],
        "sharedDevices": sorted(shares, key=lambda one: tuple(one.values())),
        "capacity": [
            {**_named(key), "consumed": {name: _text(nanos) for name, nanos in amounts.items()}}
            for key, amounts in sorted(allocated.capacity.items())
        ],
    }


def _named(key: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("driver", "pool", "device"), key, strict=True))


def _text(nanos: int) -> str:
    return Quantity(nanos, nanos // 10**9).canonical()


def _outcome(outcome: AllocationOutcome, shares: Iterator[int]) -> dict[str, Any]:
    steps = {"allocateOne": outcome.steps} if outcome.steps else {}
    match outcome:
        case Allocated(claims):
            told = [_claim(one, shares) for one in claims]
            return {"outcome": "allocated", **steps, **({"allocations": told} if told else {})}
        case AllocationFailed(message):
            return {"outcome": "error", "error": message, **steps}
        case AllocationUnknown(reason):
            return {"outcome": "unknown", "error": reason, **steps}
    if outcome.message:
        return {"outcome": "nodeError", "error": outcome.message, **steps}
    return {"outcome": "unsatisfiable", **steps}


def _claim(claim: ClaimAllocation, shares: Iterator[int]) -> dict[str, Any]:
    told: dict[str, Any] = {"devices": {}}
    if claim.devices:
        told["devices"]["results"] = [_result(one, shares) for one in claim.devices]
    if claim.configurations:
        told["devices"]["config"] = [_configuration(one) for one in claim.configurations]
    if claim.requirements:
        told["nodeSelector"] = {"nodeSelectorTerms": [_term(claim.requirements)]}
    return told


def _result(given: AllocatedDevice, shares: Iterator[int]) -> dict[str, Any]:
    consumed = {name: amount.canonical() for name, amount in given.consumed.items()}
    return {
        "request": given.request,
        **_named(given.key),
        **({"adminAccess": True} if given.admin else {}),
        **({"tolerations": [_toleration(one) for one in given.tolerations]} if given.tolerations else {}),
        **({"bindingConditions": list(given.binding_conditions)} if given.binding_conditions else {}),
        **(
            {"bindingFailureConditions": list(given.binding_failure_conditions)}
            if given.binding_failure_conditions
            else {}
        ),
        **({"shareID": f"share-{next(shares)}"} if given.shared else {}),
        **({"consumedCapacity": consumed} if consumed else {}),
    }


def _toleration(given: Toleration) -> dict[str, Any]:
    told = {"key": given.key, "operator": given.operator, "value": given.value, "effect": given.effect}
    seconds = {} if given.seconds is None else {"tolerationSeconds": given.seconds}
    return {**{name: value for name, value in told.items() if value}, **seconds}


def _configuration(given: AllocatedConfiguration) -> dict[str, Any]:
    return {
        "source": "FromClass" if given.from_class else "FromClaim",
        **({"requests": list(given.requests)} if given.requests else {}),
        "opaque": dict(given.configuration.opaque),
    }


def _term(requirements: tuple[NodeRequirement, ...]) -> dict[str, Any]:
    told: dict[str, Any] = {}
    for one in requirements:
        values = {"values": list(one.values)} if one.values else {}
        row = {"key": one.key, "operator": one.operator, **values}
        told.setdefault("matchFields" if one.on_field else "matchExpressions", []).append(row)
    return told
